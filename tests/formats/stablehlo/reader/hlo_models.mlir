// Float programs that are read as models, and run as ONNX beside jaxlib's interpreter.
func.func @dense(%x: tensor<5x4xf32>) -> tensor<5x3xf32> {
  %w = stablehlo.constant dense<[[1.0, -2.0, 0.5], [0.25, 1.5, -1.0], [2.0, 0.125, 0.75], [-0.5, 1.0, 3.0]]> : tensor<4x3xf32>
  %b = stablehlo.constant dense<[0.5, -1.0, 2.0]> : tensor<3xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<5x4xf32>, tensor<4x3xf32>) -> tensor<5x3xf32>
  %1 = stablehlo.reshape %b : (tensor<3xf32>) -> tensor<1x3xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<1x3xf32>) -> tensor<5x3xf32>
  %3 = stablehlo.add %0, %2 : tensor<5x3xf32>
  %4 = call @relu6(%3) : (tensor<5x3xf32>) -> tensor<5x3xf32>
  return %4 : tensor<5x3xf32>
}
func.func private @relu6(%x: tensor<5x3xf32>) -> tensor<5x3xf32> {
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.constant dense<6.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %z, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
  %1 = stablehlo.maximum %x, %0 : tensor<5x3xf32>
  %2 = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<5x3xf32>
  %3 = stablehlo.minimum %1, %2 : tensor<5x3xf32>
  return %3 : tensor<5x3xf32>
}
// -----
func.func @convolutions(%x: tensor<2x7x8x4xf32>, %w: tensor<3x2x2x6xf32>, %v: tensor<1x1x6x6xf32>) -> tensor<2x4x8x6xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [2, 1], pad = [[1, 2], [1, 1]], rhs_dilate = [1, 2]}
    {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<2x7x8x4xf32>, tensor<3x2x2x6xf32>) -> tensor<2x4x8x6xf32>
  %1 = stablehlo.convolution(%0, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x4x8x6xf32>, tensor<1x1x6x6xf32>) -> tensor<2x4x8x6xf32>
  return %1 : tensor<2x4x8x6xf32>
}
// -----
func.func @transposed_convolution(%x: tensor<2x2x5xf32>) -> tensor<2x3x11xf32> {
  %w = stablehlo.constant dense<[[[1.0, 2.0, 3.0], [0.5, -1.0, 4.0]], [[2.0, 0.0, 1.0], [-1.0, -2.0, 0.25]], [[1.5, 1.0, -3.0], [0.0, 0.5, 1.0]]]> : tensor<3x2x3xf32>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], window = {pad = [[2, 2]], lhs_dilate = [2]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x2x5xf32>, tensor<3x2x3xf32>) -> tensor<2x3x11xf32>
  return %0 : tensor<2x3x11xf32>
}
// -----
func.func @pools(%x: tensor<2x6x6x3xf32>) -> (tensor<2x3x3x3xf32>, tensor<2x6x6x3xf32>, tensor<2x3xf32>, tensor<2x3x6xf32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %low) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>} : (tensor<2x6x6x3xf32>, tensor<f32>) -> tensor<2x3x3x3xf32>
  %1 = "stablehlo.reduce_window"(%x, %zero) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 1, 3, 3, 1>, padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>} : (tensor<2x6x6x3xf32>, tensor<f32>) -> tensor<2x6x6x3xf32>
  %nine = stablehlo.constant dense<9.0> : tensor<2x6x6x3xf32>
  %2 = stablehlo.divide %1, %nine : tensor<2x6x6x3xf32>
  %3 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1, 2] : (tensor<2x6x6x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %n = stablehlo.constant dense<36.0> : tensor<f32>
  %4 = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
  %5 = stablehlo.divide %3, %4 : tensor<2x3xf32>
  %6 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<2x6x6x3xf32>, tensor<f32>) -> tensor<2x6x3xf32>
  %7 = stablehlo.transpose %6, dims = [0, 2, 1] : (tensor<2x6x3xf32>) -> tensor<2x3x6xf32>
  return %0, %2, %5, %7 : tensor<2x3x3x3xf32>, tensor<2x6x6x3xf32>, tensor<2x3xf32>, tensor<2x3x6xf32>
}
// -----
func.func @softmax(%x: tensor<4x5xf32>) -> tensor<4x5xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<4x5xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.broadcast_in_dim %low, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %2 = stablehlo.maximum %1, %0 : tensor<4xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<4xf32>) -> tensor<4x1xf32>
  %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x5xf32>
  %5 = stablehlo.subtract %x, %4 : tensor<4x5xf32>
  %6 = stablehlo.exponential %5 : tensor<4x5xf32>
  %7 = stablehlo.reduce(%6 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x5xf32>, tensor<f32>) -> tensor<4xf32>
  %8 = stablehlo.broadcast_in_dim %7, dims = [0] : (tensor<4xf32>) -> tensor<4x1xf32>
  %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<4x1xf32>) -> tensor<4x5xf32>
  %10 = stablehlo.divide %6, %9 : tensor<4x5xf32>
  return %10 : tensor<4x5xf32>
}
// -----
func.func @moved(%x: tensor<4x6xf32>) -> (tensor<6x7xf32>, tensor<4x12xf32>, tensor<2x3x4xf32>, tensor<4x6xf32>) {
  %z = stablehlo.constant dense<0.5> : tensor<f32>
  %0 = stablehlo.pad %x, %z, low = [1, 0], high = [1, 1], interior = [0, 0] : (tensor<4x6xf32>, tensor<f32>) -> tensor<6x7xf32>
  %1 = stablehlo.reverse %x, dims = [1] : tensor<4x6xf32>
  %2 = stablehlo.concatenate %x, %1, dim = 1 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x12xf32>
  %3 = stablehlo.slice %x [0:4:2, 0:6:2] : (tensor<4x6xf32>) -> tensor<2x3xf32>
  %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3x4xf32>
  %5 = stablehlo.iota dim = 1 : tensor<4x6xf32>
  %6 = stablehlo.multiply %x, %5 : tensor<4x6xf32>
  return %0, %2, %4, %6 : tensor<6x7xf32>, tensor<4x12xf32>, tensor<2x3x4xf32>, tensor<4x6xf32>
}
// -----
func.func @elements(%x: tensor<4x6xf32>, %y: tensor<6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xi32>) {
  %0 = stablehlo.broadcast_in_dim %y, dims = [1] : (tensor<6xf32>) -> tensor<4x6xf32>
  %1 = stablehlo.compare LT, %x, %0, FLOAT : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>
  %2 = stablehlo.compare NE, %x, %0, FLOAT : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xi1>
  %3 = stablehlo.and %1, %2 : tensor<4x6xi1>
  %4 = stablehlo.tanh %x : tensor<4x6xf32>
  %5 = stablehlo.logistic %0 : tensor<4x6xf32>
  %6 = stablehlo.select %3, %4, %5 : tensor<4x6xi1>, tensor<4x6xf32>
  %l = stablehlo.constant dense<-0.25> : tensor<f32>
  %h = stablehlo.constant dense<0.75> : tensor<f32>
  %7 = stablehlo.clamp %l, %6, %h : (tensor<f32>, tensor<4x6xf32>, tensor<f32>) -> tensor<4x6xf32>
  %8 = stablehlo.multiply %0, %0 : tensor<4x6xf32>
  %9 = stablehlo.abs %8 : tensor<4x6xf32>
  %one = stablehlo.constant dense<1.0> : tensor<4x6xf32>
  %10 = stablehlo.add %9, %one : tensor<4x6xf32>
  %11 = stablehlo.rsqrt %10 : tensor<4x6xf32>
  %12 = stablehlo.convert %x : (tensor<4x6xf32>) -> tensor<4x6xi32>
  return %7, %11, %12 : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xi32>
}
// -----
func.func @batched(%x: tensor<2x4x3x6xf32>, %y: tensor<6x5x2x3xf32>) -> (tensor<2x4x5xf32>, tensor<2x3x6x4x5xf32>) {
  %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [2], contracting_dims = [3, 2] x [0, 3] : (tensor<2x4x3x6xf32>, tensor<6x5x2x3xf32>) -> tensor<2x4x5xf32>
  %1 = stablehlo.slice %x [0:2, 0:4, 0:3, 0:5] : (tensor<2x4x3x6xf32>) -> tensor<2x4x3x5xf32>
  %2 = stablehlo.dot_general %y, %1, batching_dims = [2, 3] x [0, 2], contracting_dims = [1] x [3] : (tensor<6x5x2x3xf32>, tensor<2x4x3x5xf32>) -> tensor<2x3x6x4xf32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1, 2, 3] : (tensor<2x3x6x4xf32>) -> tensor<2x3x6x4x5xf32>
  return %0, %3 : tensor<2x4x5xf32>, tensor<2x3x6x4x5xf32>
}
// -----
func.func @minus_one(%x: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) {
  %0 = stablehlo.exponential_minus_one %x : tensor<4x6xf32>
  %1 = stablehlo.multiply %x, %x : tensor<4x6xf32>
  %2 = stablehlo.log_plus_one %1 : tensor<4x6xf32>
  %3 = stablehlo.negate %x : tensor<4x6xf32>
  %4 = stablehlo.exponential_minus_one %3 : tensor<4x6xf32>
  return %0, %2, %4 : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}
// -----
func.func @embedding(%w: tensor<5x3xf32>, %i: tensor<2x4x1xi32>) -> tensor<2x4x3xf32> {
  %0 = "stablehlo.gather"(%w, %i) {
    dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>,
    slice_sizes = array<i64: 1, 3>, indices_are_sorted = false
  } : (tensor<5x3xf32>, tensor<2x4x1xi32>) -> tensor<2x4x3xf32>
  return %0 : tensor<2x4x3xf32>
}
// -----
func.func @windows(%w: tensor<2x6x5xf32>, %i: tensor<2x3xi32>, %j: tensor<3x2xi32>) -> (tensor<2x2x3x4xf32>, tensor<2x3x2xf32>, tensor<3x2xf32>) {
  %0 = "stablehlo.gather"(%w, %i) {
    dimension_numbers = #stablehlo.gather<offset_dims = [1, 2, 3], start_index_map = [0, 1, 2], index_vector_dim = 1>,
    slice_sizes = array<i64: 2, 3, 4>, indices_are_sorted = false
  } : (tensor<2x6x5xf32>, tensor<2x3xi32>) -> tensor<2x2x3x4xf32>
  %1 = "stablehlo.gather"(%w, %j) {
    dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [1], start_index_map = [1], index_vector_dim = 2>,
    slice_sizes = array<i64: 1, 1, 2>, indices_are_sorted = false
  } : (tensor<2x6x5xf32>, tensor<3x2xi32>) -> tensor<3x2x2xf32>
  %2 = stablehlo.transpose %1, dims = [1, 0, 2] : (tensor<3x2x2xf32>) -> tensor<2x3x2xf32>
  %k = stablehlo.constant dense<[[0, 1, 4], [9, -3, 2]]> : tensor<2x3xi32>
  %3 = "stablehlo.gather"(%w, %k) {
    dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0, 2], start_index_map = [2, 1], index_vector_dim = 0>,
    slice_sizes = array<i64: 1, 2, 1>, indices_are_sorted = false
  } : (tensor<2x6x5xf32>, tensor<2x3xi32>) -> tensor<3x2xf32>
  return %0, %2, %3 : tensor<2x2x3x4xf32>, tensor<2x3x2xf32>, tensor<3x2xf32>
}
// -----
func.func @odd_convolutions(%x: tensor<4x3x7x6xf32>, %w: tensor<6x3x2x3xf32>) -> (tensor<2x6x6x4xf32>, tensor<4x6x5x8xf32>, tensor<4x6x4x4xf32>) {
  %0 = "stablehlo.convolution"(%x, %w) {
    dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, batch_group_count = 2 : i64, feature_group_count = 1 : i64
  } : (tensor<4x3x7x6xf32>, tensor<6x3x2x3xf32>) -> tensor<2x6x6x4xf32>
  %1 = "stablehlo.convolution"(%x, %w) {
    dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, batch_group_count = 1 : i64, feature_group_count = 1 : i64,
    lhs_dilation = array<i64: 2, 3>, rhs_dilation = array<i64: 1, 2>, window_strides = array<i64: 3, 2>,
    padding = dense<[[2, 0], [1, 2]]> : tensor<2x2xi64>
  } : (tensor<4x3x7x6xf32>, tensor<6x3x2x3xf32>) -> tensor<4x6x5x8xf32>
  %2 = "stablehlo.convolution"(%x, %w) {
    dimension_numbers = #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, batch_group_count = 1 : i64, feature_group_count = 1 : i64,
    window_reversal = array<i1: true, true>, padding = dense<[[-1, -1], [0, 0]]> : tensor<2x2xi64>
  } : (tensor<4x3x7x6xf32>, tensor<6x3x2x3xf32>) -> tensor<4x6x4x4xf32>
  return %0, %1, %2 : tensor<2x6x6x4xf32>, tensor<4x6x5x8xf32>, tensor<4x6x4x4xf32>
}
// -----
func.func @roots(%x: tensor<4x6xf32>, %i: tensor<5xi32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<8xf32>) {
  %0 = stablehlo.cbrt %x : tensor<4x6xf32>
  %1 = stablehlo.round_nearest_afz %x : tensor<4x6xf32>
  %c = stablehlo.constant dense<[0.5, -0.5, 0.49999997, -0.49999997, 1.5, -2.5, 8388609.0, 0.0]> : tensor<8xf32>
  %z = "stablehlo.convert"(%i) : (tensor<5xi32>) -> tensor<5xf32>
  %s = "stablehlo.slice"(%z) {start_indices = array<i64: 0>, limit_indices = array<i64: 1>, strides = array<i64: 1>} : (tensor<5xf32>) -> tensor<1xf32>
  %n = stablehlo.subtract %s, %s : tensor<1xf32>
  %b = stablehlo.broadcast_in_dim %n, dims = [0] : (tensor<1xf32>) -> tensor<8xf32>
  %y = stablehlo.add %c, %b : tensor<8xf32>
  %2 = stablehlo.round_nearest_afz %y : tensor<8xf32>
  return %0, %1, %2 : tensor<4x6xf32>, tensor<4x6xf32>, tensor<8xf32>
}
