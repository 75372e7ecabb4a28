// Reports out-of-range indices. Include it after step.glsl or step_<stem>.glsl.

// Reports an out-of-range index. The first node that reports is named, because gradient nodes read
// the same indices again. The caller has already made the access harmless.
void bad_index(Step step, uint node, int index) {
  if (step.error == 0) {
    step.error_node = node;
    step.error_value = index;
    step.error = kIndexOutOfRange;
  }
}
