// Reduction of losses: terms with their weights, which loss_total.comp adds.
const uint kMean = 0;
const uint kNone = 2;

// Writes the loss and the weight of a term; with reduction none, only the loss.
void write_term(Floats terms, uint i, A loss, A weight, uint reduction) {
  if (reduction == kNone) {
    terms.v[i] = loss;
  } else {
    terms.v[2 * i] = loss;
    terms.v[2 * i + 1] = weight;
  }
}

// The factor of the gradient of a term.
A term_factor(Floats dloss, uint i, Floats weight, uint reduction) {
  const A all = reduction == kMean ? weight.v[0] : 1;
  return dloss.v[reduction == kNone ? i : 0] / (all != 0 ? all : 1);
}
