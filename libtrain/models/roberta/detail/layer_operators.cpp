// On the CPU, in float32 and bfloat16, each operator is one pass over memory forward and one backward. Backward, sums
// over rows are added up in blocks of rows, so that they do not depend on the number of threads.

#include <libtrain/models/roberta/detail/layer_operators.hpp>

#include <algorithm>
#include <cstdint>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <libtrain/models/roberta/detail/layer_kernels.hpp>

namespace libtrain::models::detail {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr std::int64_t kRowsOfBlock = 32;

// Calls work(block, first row, last row).
template <typename Work>
void in_blocks(std::int64_t rows, const Work& work) {
  const auto blocks = (rows + kRowsOfBlock - 1) / kRowsOfBlock;
  at::parallel_for(0, blocks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (auto block = begin; block < end; ++block) {
      work(block, block * kRowsOfBlock, std::min(rows, (block + 1) * kRowsOfBlock));
    }
  });
}

at::Tensor block_sums(std::int64_t rows, std::int64_t width) {
  return at::zeros({(rows + kRowsOfBlock - 1) / kRowsOfBlock, width}, at::kFloat);
}

at::Tensor as_float(const at::Tensor& parameter) {
  return parameter.to(at::kFloat).contiguous();
}

struct AddAndNorm : torch::autograd::Function<AddAndNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& values_in, const at::Tensor& bias,
                            const at::Tensor& residual_in, const at::Tensor& scale_in, const at::Tensor& shift,
                            double epsilon, double probability, std::int64_t seed) {
    const auto values = values_in.contiguous(), residual = residual_in.contiguous();
    const auto bias_numbers = as_float(bias), scale = as_float(scale_in), shift_numbers = as_float(shift);
    const auto count = values.size(0);
    auto sums = at::empty_like(values), outputs = at::empty_like(values);
    auto means = at::empty({count}, at::kFloat), inverse_deviations = at::empty({count}, at::kFloat);
    with_type(values, [&]<typename T>(T) {
      const NormRows<T> rows{.values = values.const_data_ptr<T>(),
                             .bias = bias_numbers.const_data_ptr<float>(),
                             .residual = residual.const_data_ptr<T>(),
                             .scale = scale.const_data_ptr<float>(),
                             .shift = shift_numbers.const_data_ptr<float>(),
                             .sums = sums.mutable_data_ptr<T>(),
                             .outputs = outputs.mutable_data_ptr<T>(),
                             .means = means.mutable_data_ptr<float>(),
                             .inverse_deviations = inverse_deviations.mutable_data_ptr<float>(),
                             .width = values.size(1),
                             .epsilon = epsilon,
                             .dropout = {probability, static_cast<std::uint64_t>(seed)}};
      in_blocks(count, [&](std::int64_t, std::int64_t first, std::int64_t last) { norm_rows(rows, first, last); });
    });
    context->save_for_backward({sums, means, inverse_deviations, scale_in});
    context->saved_data["probability"] = probability;
    context->saved_data["seed"] = seed;
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients_of_outputs) {
    require_first_derivative();
    const auto saved = context->get_saved_variables();
    const auto& sums = saved[0];
    const auto type = saved[3].scalar_type();
    const auto scale = as_float(saved[3]);
    const auto gradients = gradients_of_outputs[0].contiguous();
    const Dropout dropout{context->saved_data["probability"].toDouble(),
                          static_cast<std::uint64_t>(context->saved_data["seed"].toInt())};
    const auto count = sums.size(0), width = sums.size(1);
    auto to_residual = at::empty_like(sums);
    auto to_values = dropout.probability > 0 ? at::empty_like(sums) : to_residual;
    auto parts = block_sums(count, 3 * width);
    with_type(sums, [&]<typename T>(T) {
      in_blocks(count, [&](std::int64_t block, std::int64_t first, std::int64_t last) {
        norm_gradient_rows(
            NormGradientRows<T>{.gradients = gradients.const_data_ptr<T>(),
                                .sums = sums.const_data_ptr<T>(),
                                .means = saved[1].const_data_ptr<float>(),
                                .inverse_deviations = saved[2].const_data_ptr<float>(),
                                .scale = scale.const_data_ptr<float>(),
                                .to_residual = to_residual.mutable_data_ptr<T>(),
                                .to_values = dropout.probability > 0 ? to_values.mutable_data_ptr<T>() : nullptr,
                                .to_parameters = parts.mutable_data_ptr<float>() + block * 3 * width,
                                .width = width,
                                .dropout = dropout},
            first, last);
      });
    });
    const auto to_parameters = parts.sum(0).to(type).view({3, width}).unbind(0);
    return {to_values, to_parameters[2], to_residual, to_parameters[0], to_parameters[1], {}, {}, {}};
  }
};

struct FeedForward : torch::autograd::Function<FeedForward> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& inputs, const at::Tensor& up,
                            const at::Tensor& bias, const at::Tensor& down) {
    const auto values = inputs.mm(up.t());
    const auto bias_numbers = as_float(bias);
    auto outputs = at::empty_like(values);
    with_type(values, [&]<typename T>(T) {
      in_blocks(values.size(0), [&](std::int64_t, std::int64_t first, std::int64_t last) {
        gelu_rows(values.const_data_ptr<T>(), bias_numbers.const_data_ptr<float>(), outputs.mutable_data_ptr<T>(),
                  values.size(1), first, last);
      });
    });
    context->save_for_backward({inputs, values, up, bias, down});
    return outputs.mm(down.t());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients_of_outputs) {
    require_first_derivative();
    const auto saved = context->get_saved_variables();
    const auto &inputs = saved[0], &values = saved[1], &up = saved[2], &bias = saved[3], &down = saved[4];
    const auto gradients = gradients_of_outputs[0].contiguous();
    const auto bias_numbers = as_float(bias);
    auto hidden = gradients.mm(down);  // becomes gradients with respect to the values
    auto outputs = at::empty_like(values);
    const auto width = values.size(1);
    auto parts = block_sums(values.size(0), width);
    with_type(values, [&]<typename T>(T) {
      in_blocks(values.size(0), [&](std::int64_t block, std::int64_t first, std::int64_t last) {
        gelu_gradient_rows(values.const_data_ptr<T>(), bias_numbers.const_data_ptr<float>(),
                           outputs.mutable_data_ptr<T>(), hidden.mutable_data_ptr<T>(),
                           parts.mutable_data_ptr<float>() + block * width, width, first, last);
      });
    });
    const auto when = [&](std::size_t input, const auto& compute) {
      return context->needs_input_grad(input) ? compute() : at::Tensor();
    };
    return {when(0, [&] { return hidden.mm(up); }), when(1, [&] { return hidden.t().mm(inputs); }),
            when(2, [&] { return parts.sum(0).to(bias.scalar_type()); }),
            when(3, [&] { return gradients.t().mm(outputs); })};
  }
};

}  // namespace

void require_first_derivative() {
  TORCH_CHECK(
      !at::GradMode::is_enabled(),
      "RoBERTa's loops for the CPU have no second derivative, which create_graph asks for. Convert the model and "
      "what it computes to float64.");
}

bool has_cpu_kernels(const at::Tensor& values) {
  return values.is_cpu() && values.size(-1) % kWidthMultiple == 0 &&
         (values.scalar_type() == at::kFloat || values.scalar_type() == at::kBFloat16);
}

at::Tensor add_and_norm(const at::Tensor& values, const at::Tensor& bias, const at::Tensor& residual,
                        const at::Tensor& scale, const at::Tensor& shift, double epsilon, const Dropout& dropout) {
  if (has_cpu_kernels(values) && values.scalar_type() == residual.scalar_type()) {
    return AddAndNorm::apply(values, bias, residual, scale, shift, epsilon, dropout.probability,
                             static_cast<std::int64_t>(dropout.seed));
  }
  const auto dropped = at::dropout(values + bias, dropout.probability, dropout.probability > 0);
  return at::layer_norm(dropped + residual, {residual.size(1)}, scale, shift, epsilon).to(residual.scalar_type());
}

at::Tensor feed_forward(const at::Tensor& inputs, const at::Tensor& up, const at::Tensor& bias,
                        const at::Tensor& down) {
  if (has_cpu_kernels(inputs) && up.size(0) % kWidthMultiple == 0) {
    // The weights' casts are autograd's: the function gets what it multiplies.
    const auto type = inputs.scalar_type();
    return FeedForward::apply(inputs, at::autocast::cached_cast(type, up, c10::kCPU), bias,
                              at::autocast::cached_cast(type, down, c10::kCPU));
  }
  return at::linear(at::gelu(at::linear(inputs, up, bias)), down);
}

}  // namespace libtrain::models::detail
