// The error word; after step.glsl, or a file with words of its own.

// Notes an index that lies outside its range: the first node that does is named, not those that
// read its indices again, as gradients do. The access itself has been made harmless.
void bad_index(Step step, uint node, int index) {
  if (step.error == 0) {
    step.error_node = node;
    step.error_value = index;
    step.error = kIndexOutOfRange;
  }
}
