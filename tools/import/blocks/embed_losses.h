// Losses that train embeddings, for groups of two or three texts.
#pragma once

#include "blocks/text_head.h"

namespace bowline::import {

// The embedding of each text, f32 [batch, width], and the tokens.
struct Embedded {
  Value vectors, tokens;
};
Embedded embed(GraphBuilder& g, const TextHead& head, const AddRows& rows, const RowsOf& of,
               int64_t width);

// Adds the entry points of the losses. Each has an output "loss". The inputs are those of `embed`
// ("tokens", "lengths") for the first texts; the same with the prefix "second_" for the second
// texts; and "third_" for the third texts. cos is the cosine of the angle between two embeddings.
//
//   loss                 Each first text belongs to the second text of its row. The other second
//                        texts of the batch are its negatives: cross-entropy over
//                        similarity_scale * cos.
//   loss_with_negatives  The same, and all third texts are negatives, too.
//   triplet_loss         max(|first - second| - |first - third| + triplet_margin, 0), the mean of
//                        the rows. |.| is the Euclidean norm.
//   score_loss           The mean of (cos - score)^2. The input "scores" is f32 [batch].
//
// With Matryoshka widths, each loss is the sum over these widths and the full width. In this case
// triplet_loss normalizes the embeddings; otherwise it reads them as `embed` returns them.
// `dropout`: the losses use the dropout rates of the model.
//
// Source  sentence-transformers 6: MultipleNegativesRankingLoss, TripletLoss, CosineSimilarityLoss,
//         MatryoshkaLoss.
Status add_embed_losses(Model& model, const TextHead& head, const AddRows& rows, int64_t width,
                        bool dropout);

}  // namespace bowline::import
