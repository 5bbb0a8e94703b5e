#pragma once

#include <map>
#include <string>

#include <libtrain/checkpoint/tensor_info.hpp>
#include <libtrain/models/roberta/roberta_config.hpp>

#include <tools/checkpoint/onnx_model.hpp>

namespace libtrain::checkpoint_tool {

/// Whether the names are those of a RoBERTa, perhaps with something in front.
bool has_roberta_names(const std::map<std::string, TensorInfo>& tensors);

/// The ONNX model, in evaluation mode, of the RoBERTa classifier whose weights a file has: `tensors` are these by the
/// names of transformers' RobertaForSequenceClassification, which libtrain's has too, `path` is the file, for errors,
/// and `config` is what models::read_roberta_config() read beside it. A pooler, the head of masked language modelling
/// and tables of numbers are not used.
///
/// Its inputs `input_ids` and `attention_mask`, 0 for padding, are int64 [N, S] and its output `logits` is [N,
/// classes], with N and S the caller's choice, S at most as in the metadata `max_tokens`. The other metadata are
/// `problem_type`, as in config.json, and `classes`, a JSON list of names, if there are any.
///
/// Throws UsageError if the weights are not those that `config` describes, as require_weights().
OnnxModel roberta_onnx(const std::map<std::string, TensorInfo>& tensors, const std::string& path,
                       const models::RobertaConfig& config);

}  // namespace libtrain::checkpoint_tool
