// abs
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.abs"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// cbrt
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.cbrt"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// ceil
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.ceil"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// cosine
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.cosine"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// exponential
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.exponential"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// exponential_minus_one
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.exponential_minus_one"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// floor
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.floor"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// is_finite
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xi1> {
  %0 = "stablehlo.is_finite"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xi1>
  return %0 : tensor<2x4xi1>
}
// -----
// log
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.log"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// log_plus_one
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.log_plus_one"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// logistic
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.logistic"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// negate
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.negate"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// optimization_barrier
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.optimization_barrier"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// round_nearest_afz
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.round_nearest_afz"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// round_nearest_even
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.round_nearest_even"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// rsqrt
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.rsqrt"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// sign
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.sign"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// sine
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.sine"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// sqrt
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.sqrt"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// tan
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.tan"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// tanh
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.tanh"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// count_leading_zeros
func.func @main(%x0: tensor<2x4xi32>) -> tensor<2x4xi32> {
  %0 = "stablehlo.count_leading_zeros"(%x0) : (tensor<2x4xi32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
// -----
// not
func.func @main(%x0: tensor<2x4xi32>) -> tensor<2x4xi32> {
  %0 = "stablehlo.not"(%x0) : (tensor<2x4xi32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
// -----
// popcnt
func.func @main(%x0: tensor<2x4xi32>) -> tensor<2x4xi32> {
  %0 = "stablehlo.popcnt"(%x0) : (tensor<2x4xi32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
// -----
// add
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.add"(%x0, %x1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// atan2
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.atan2"(%x0, %x1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// divide
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.divide"(%x0, %x1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// maximum
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.maximum"(%x0, %x1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// minimum
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.minimum"(%x0, %x1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// multiply
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.multiply"(%x0, %x1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// power
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.power"(%x0, %x1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// remainder
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.remainder"(%x0, %x1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// subtract
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.subtract"(%x0, %x1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// and
func.func @main(%x0: tensor<2x4xi32>, %x1: tensor<2x4xi32>) -> tensor<2x4xi32> {
  %0 = "stablehlo.and"(%x0, %x1) : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
// -----
// or
func.func @main(%x0: tensor<2x4xi32>, %x1: tensor<2x4xi32>) -> tensor<2x4xi32> {
  %0 = "stablehlo.or"(%x0, %x1) : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
// -----
// shift_left
func.func @main(%x0: tensor<2x4xi32>, %x1: tensor<2x4xi32>) -> tensor<2x4xi32> {
  %0 = "stablehlo.shift_left"(%x0, %x1) : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
// -----
// shift_right_arithmetic
func.func @main(%x0: tensor<2x4xi32>, %x1: tensor<2x4xi32>) -> tensor<2x4xi32> {
  %0 = "stablehlo.shift_right_arithmetic"(%x0, %x1) : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
// -----
// shift_right_logical
func.func @main(%x0: tensor<2x4xi32>, %x1: tensor<2x4xi32>) -> tensor<2x4xi32> {
  %0 = "stablehlo.shift_right_logical"(%x0, %x1) : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
// -----
// xor
func.func @main(%x0: tensor<2x4xi32>, %x1: tensor<2x4xi32>) -> tensor<2x4xi32> {
  %0 = "stablehlo.xor"(%x0, %x1) : (tensor<2x4xi32>, tensor<2x4xi32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
// -----
// all_gather
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.all_gather"(%x0) {all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// all_reduce
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.all_reduce"(%x0) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) {replica_groups = dense<0> : tensor<1x1xi64>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// batch_norm_inference
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<4xf32>, %x2: tensor<4xf32>, %x3: tensor<4xf32>, %x4: tensor<4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.batch_norm_inference"(%x0, %x1, %x2, %x3, %x4) {epsilon = 0.5 : f32, feature_index = 1 : i64} : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// bitcast_convert
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xi32> {
  %0 = "stablehlo.bitcast_convert"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
// -----
// broadcast_in_dim
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x3x4xf32> {
  %0 = "stablehlo.broadcast_in_dim"(%x0) {broadcast_dimensions = array<i64: 0, 2>} : (tensor<2x4xf32>) -> tensor<2x3x4xf32>
  return %0 : tensor<2x3x4xf32>
}
// -----
// cholesky
func.func @main(%x0: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = "stablehlo.cholesky"(%x0) {lower = true} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
// -----
// clamp
func.func @main(%x0: tensor<f32>, %x1: tensor<2x4xf32>, %x2: tensor<f32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.clamp"(%x0, %x1, %x2) : (tensor<f32>, tensor<2x4xf32>, tensor<f32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// compare
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x4xi1> {
  %0 = "stablehlo.compare"(%x0, %x1) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xi1>
  return %0 : tensor<2x4xi1>
}
// -----
// complex
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x4xcomplex<f32>> {
  %0 = "stablehlo.complex"(%x0, %x1) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xcomplex<f32>>
  return %0 : tensor<2x4xcomplex<f32>>
}
// -----
// concatenate
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x8xf32> {
  %0 = "stablehlo.concatenate"(%x0, %x1) {dimension = 1 : i64} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}
// -----
// convert
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xi32> {
  %0 = "stablehlo.convert"(%x0) : (tensor<2x4xf32>) -> tensor<2x4xi32>
  return %0 : tensor<2x4xi32>
}
// -----
// dot_general
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x2xf32> {
  %0 = "stablehlo.dot_general"(%x0, %x1) {dot_dimension_numbers = #stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}
// -----
// dynamic_slice
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<i32>, %x2: tensor<i32>) -> tensor<1x2xf32> {
  %0 = "stablehlo.dynamic_slice"(%x0, %x1, %x2) {slice_sizes = array<i64: 1, 2>} : (tensor<2x4xf32>, tensor<i32>, tensor<i32>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}
// -----
// dynamic_update_slice
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<1x2xf32>, %x2: tensor<i32>, %x3: tensor<i32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.dynamic_update_slice"(%x0, %x1, %x2, %x3) : (tensor<2x4xf32>, tensor<1x2xf32>, tensor<i32>, tensor<i32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// fft
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x3xcomplex<f32>> {
  %0 = "stablehlo.fft"(%x0) {fft_type = #stablehlo<fft_type RFFT>, fft_length = array<i64: 4>} : (tensor<2x4xf32>) -> tensor<2x3xcomplex<f32>>
  return %0 : tensor<2x3xcomplex<f32>>
}
// -----
// gather
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<3x1xi32>) -> tensor<3x4xf32> {
  %0 = "stablehlo.gather"(%x0, %x1) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 4>, indices_are_sorted = false} : (tensor<2x4xf32>, tensor<3x1xi32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}
// -----
// get_dimension_size
func.func @main(%x0: tensor<2x4xf32>) -> tensor<i32> {
  %0 = "stablehlo.get_dimension_size"(%x0) {dimension = 1 : i64} : (tensor<2x4xf32>) -> tensor<i32>
  return %0 : tensor<i32>
}
// -----
// imag
func.func @main(%x0: tensor<2x4xcomplex<f32>>) -> tensor<2x4xf32> {
  %0 = "stablehlo.imag"(%x0) : (tensor<2x4xcomplex<f32>>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// map
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.map"(%x0, %x1) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.multiply"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) {dimensions = array<i64: 0, 1>} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// real
func.func @main(%x0: tensor<2x4xcomplex<f32>>) -> tensor<2x4xf32> {
  %0 = "stablehlo.real"(%x0) : (tensor<2x4xcomplex<f32>>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// reduce_precision
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.reduce_precision"(%x0) {exponent_bits = 5 : i32, mantissa_bits = 10 : i32} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// reshape
func.func @main(%x0: tensor<2x4xf32>) -> tensor<8xf32> {
  %0 = "stablehlo.reshape"(%x0) : (tensor<2x4xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
// -----
// reverse
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.reverse"(%x0) {dimensions = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// scatter
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<3x1xi32>, %x2: tensor<3x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.scatter"(%x0, %x1, %x2) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) {scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>} : (tensor<2x4xf32>, tensor<3x1xi32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// select
func.func @main(%x0: tensor<2x4xi1>, %x1: tensor<2x4xf32>, %x2: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.select"(%x0, %x1, %x2) : (tensor<2x4xi1>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// slice
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x2xf32> {
  %0 = "stablehlo.slice"(%x0) {start_indices = array<i64: 0, 1>, limit_indices = array<i64: 2, 3>, strides = array<i64: 1, 1>} : (tensor<2x4xf32>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}
// -----
// sort
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.sort"(%x0) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.compare"(%a, %b) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
    "stablehlo.return"(%s) : (tensor<i1>) -> ()
  }) {dimension = 1 : i64, is_stable = true} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// transpose
func.func @main(%x0: tensor<2x4xf32>) -> tensor<4x2xf32> {
  %0 = "stablehlo.transpose"(%x0) {permutation = array<i64: 1, 0>} : (tensor<2x4xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}
// -----
// triangular_solve
func.func @main(%x0: tensor<4x4xf32>, %x1: tensor<4x2xf32>) -> tensor<4x2xf32> {
  %0 = "stablehlo.triangular_solve"(%x0, %x1) {left_side = true, lower = true, unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>} : (tensor<4x4xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}
// -----
// iota
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %i = "stablehlo.iota"() {iota_dimension = 1 : i64} : () -> tensor<2x4xf32>
  %0 = "stablehlo.add"(%x0, %i) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// pad
func.func @main(%x0: tensor<2x4xf32>) -> tensor<3x8xf32> {
  %z = "stablehlo.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "stablehlo.pad"(%x0, %z) {edge_padding_low = array<i64: 0, 1>, edge_padding_high = array<i64: 1, 0>, interior_padding = array<i64: 0, 1>} : (tensor<2x4xf32>, tensor<f32>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}
// -----
// reduce
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2xf32> {
  %z = "stablehlo.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "stablehlo.reduce"(%x0, %z) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) {dimensions = array<i64: 1>} : (tensor<2x4xf32>, tensor<f32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
// -----
// reduce_window
func.func @main(%x0: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %z = "stablehlo.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "stablehlo.reduce_window"(%x0, %z) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.maximum"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) {window_dimensions = array<i64: 1, 3>, window_strides = array<i64: 1, 1>, padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>} : (tensor<2x4xf32>, tensor<f32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// select_and_scatter
func.func @main(%x0: tensor<2x4xf32>, %x1: tensor<2x2xf32>) -> tensor<2x4xf32> {
  %z = "stablehlo.constant"() {value = dense<0.0> : tensor<f32>} : () -> tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x0, %x1, %z) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.compare"(%a, %b) {comparison_direction = #stablehlo<comparison_direction GE>} : (tensor<f32>, tensor<f32>) -> tensor<i1>
    "stablehlo.return"(%s) : (tensor<i1>) -> ()
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = "stablehlo.add"(%a, %b) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    "stablehlo.return"(%s) : (tensor<f32>) -> ()
  }) {window_dimensions = array<i64: 1, 2>, window_strides = array<i64: 1, 2>} : (tensor<2x4xf32>, tensor<2x2xf32>, tensor<f32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// if
func.func @main(%x0: tensor<i1>, %x1: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.if"(%x0) ({
    "stablehlo.return"(%x1) : (tensor<2x4xf32>) -> ()
  }, {
    %n = "stablehlo.negate"(%x1) : (tensor<2x4xf32>) -> tensor<2x4xf32>
    "stablehlo.return"(%n) : (tensor<2x4xf32>) -> ()
  }) : (tensor<i1>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// case
func.func @main(%x0: tensor<i32>, %x1: tensor<2x4xf32>, %x2: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = "stablehlo.case"(%x0) ({
    "stablehlo.return"(%x1) : (tensor<2x4xf32>) -> ()
  }, {
    %n = "stablehlo.add"(%x1, %x2) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    "stablehlo.return"(%n) : (tensor<2x4xf32>) -> ()
  }) : (tensor<i32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}
// -----
// while
func.func @main(%x0: tensor<i32>, %x1: tensor<2x4xf32>, %x2: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0:2 = "stablehlo.while"(%x0, %x1) ({
  ^bb0(%a: tensor<i32>, %b: tensor<2x4xf32>):
    %l = "stablehlo.constant"() {value = dense<3> : tensor<i32>} : () -> tensor<i32>
    %t = "stablehlo.compare"(%a, %l) {comparison_direction = #stablehlo<comparison_direction LT>} : (tensor<i32>, tensor<i32>) -> tensor<i1>
    "stablehlo.return"(%t) : (tensor<i1>) -> ()
  }, {
  ^bb0(%a: tensor<i32>, %b: tensor<2x4xf32>):
    %o = "stablehlo.constant"() {value = dense<1> : tensor<i32>} : () -> tensor<i32>
    %c = "stablehlo.add"(%a, %o) : (tensor<i32>, tensor<i32>) -> tensor<i32>
    %d = "stablehlo.multiply"(%b, %x2) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    "stablehlo.return"(%c, %d) : (tensor<i32>, tensor<2x4xf32>) -> ()
  }) : (tensor<i32>, tensor<2x4xf32>) -> (tensor<i32>, tensor<2x4xf32>)
  %1 = "stablehlo.sine"(%0#1) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}
// -----
// rng_bit_generator
func.func @main(%x0: tensor<2xui64>) -> tensor<2x2xf32> {
  %r:2 = "stablehlo.rng_bit_generator"(%x0) {rng_algorithm = #stablehlo<rng_algorithm THREE_FRY>} : (tensor<2xui64>) -> (tensor<2xui64>, tensor<2x2xui64>)
  %0 = "stablehlo.convert"(%r#1) : (tensor<2x2xui64>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}
