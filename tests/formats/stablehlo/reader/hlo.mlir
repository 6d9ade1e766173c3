// Programs on reals around quantized ops: lowered to math and taken apart by jaxlib, they compute the same.
!a = !quant.uniform<i8:f32, 0.05:-3>
!b = !quant.uniform<i8:f32, 0.11:20>
!c = !quant.uniform<ui8:f32, 0.07:131>
func.func @sums(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) {
  %p = stablehlo.uniform_quantize %x : (tensor<4x6xf32>) -> tensor<4x6x!a>
  %q = stablehlo.uniform_quantize %y : (tensor<4x6xf32>) -> tensor<4x6x!b>
  %0 = stablehlo.add %p, %q : (tensor<4x6x!a>, tensor<4x6x!b>) -> tensor<4x6x!a>
  %1 = stablehlo.subtract %0, %p : tensor<4x6x!a>
  %2 = stablehlo.multiply %1, %q : (tensor<4x6x!a>, tensor<4x6x!b>) -> tensor<4x6x!b>
  %3 = stablehlo.uniform_dequantize %0 : (tensor<4x6x!a>) -> tensor<4x6xf32>
  %4 = stablehlo.uniform_dequantize %1 : (tensor<4x6x!a>) -> tensor<4x6xf32>
  %5 = stablehlo.uniform_dequantize %2 : (tensor<4x6x!b>) -> tensor<4x6xf32>
  return %3, %4, %5 : tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>
}
// -----
!a = !quant.uniform<i8:f32, 0.05:-3>
func.func @unary(%x: tensor<4x6xf32>) -> tensor<24x6xf32> {
  %p = stablehlo.uniform_quantize %x : (tensor<4x6xf32>) -> tensor<4x6x!a>
  %0 = stablehlo.abs %p : tensor<4x6x!a>
  %1 = stablehlo.negate %p : tensor<4x6x!a>
  %2 = stablehlo.ceil %p : tensor<4x6x!a>
  %3 = stablehlo.sign %p : tensor<4x6x!a>
  %4 = stablehlo.tanh %p : tensor<4x6x!a>
  %5 = stablehlo.logistic %p : tensor<4x6x!a>
  %6 = stablehlo.concatenate %0, %1, %2, %3, %4, %5, dim = 0 : (tensor<4x6x!a>, tensor<4x6x!a>, tensor<4x6x!a>, tensor<4x6x!a>, tensor<4x6x!a>, tensor<4x6x!a>) -> tensor<24x6x!a>
  %7 = stablehlo.uniform_dequantize %6 : (tensor<24x6x!a>) -> tensor<24x6xf32>
  return %7 : tensor<24x6xf32>
}
// -----
!a = !quant.uniform<i8:f32, 0.05:-3>
!c = !quant.uniform<i8:f32, 0.07:31>
func.func @choices(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xi1>) {
  %p = stablehlo.uniform_quantize %x : (tensor<4x6xf32>) -> tensor<4x6x!a>
  %q = stablehlo.uniform_quantize %y : (tensor<4x6xf32>) -> tensor<4x6x!a>
  %r = stablehlo.uniform_quantize %y : (tensor<4x6xf32>) -> tensor<4x6x!c>
  %0 = stablehlo.maximum %p, %q : tensor<4x6x!a>
  %1 = stablehlo.minimum %0, %r : (tensor<4x6x!a>, tensor<4x6x!c>) -> tensor<4x6x!a>
  %2 = stablehlo.compare GT, %p, %r, FLOAT : (tensor<4x6x!a>, tensor<4x6x!c>) -> tensor<4x6xi1>
  %3 = stablehlo.select %2, %1, %q : tensor<4x6xi1>, tensor<4x6x!a>
  %4 = stablehlo.clamp %q, %3, %p : tensor<4x6x!a>
  %5 = stablehlo.uniform_dequantize %4 : (tensor<4x6x!a>) -> tensor<4x6xf32>
  return %5, %2 : tensor<4x6xf32>, tensor<4x6xi1>
}
// -----
!a = !quant.uniform<i8:f32:1, {0.05:-3, 0.2:7, 0.01}>
!b = !quant.uniform<i8:f32:1, {0.5, 0.02:-7, 0.3:90}>
!c = !quant.uniform<ui8:f32, 0.07:131>
func.func @requantized(%x: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %p = stablehlo.uniform_quantize %x : (tensor<4x3xf32>) -> tensor<4x3x!a>
  %0 = stablehlo.uniform_quantize %p : (tensor<4x3x!a>) -> tensor<4x3x!b>
  %1 = stablehlo.uniform_quantize %p : (tensor<4x3x!a>) -> tensor<4x3x!c>
  %2 = stablehlo.uniform_dequantize %0 : (tensor<4x3x!b>) -> tensor<4x3xf32>
  %3 = stablehlo.uniform_dequantize %1 : (tensor<4x3x!c>) -> tensor<4x3xf32>
  return %2, %3 : tensor<4x3xf32>, tensor<4x3xf32>
}
// -----
!a = !quant.uniform<i4:f32, 0.4:-3>
!b = !quant.uniform<i16:f32, 0.001:77>
!c = !quant.uniform<i16<-127:127>:f32, 0.05:5>
func.func @widths(%x: tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4x6xf32>) {
  %p = stablehlo.uniform_quantize %x : (tensor<4x6xf32>) -> tensor<4x6x!a>
  %q = stablehlo.uniform_quantize %x : (tensor<4x6xf32>) -> tensor<4x6x!b>
  %d = stablehlo.uniform_quantize %p : (tensor<4x6x!a>) -> tensor<4x6x!c>
  %0 = stablehlo.add %d, %q : (tensor<4x6x!c>, tensor<4x6x!b>) -> tensor<4x6x!c>
  %1 = stablehlo.add %q, %q : tensor<4x6x!b>
  %2 = stablehlo.uniform_dequantize %0 : (tensor<4x6x!c>) -> tensor<4x6xf32>
  %3 = stablehlo.uniform_dequantize %1 : (tensor<4x6x!b>) -> tensor<4x6xf32>
  return %2, %3 : tensor<4x6xf32>, tensor<4x6xf32>
}
// -----
!a = !quant.uniform<i8:f32, 0.05:-3>
!s = !quant.uniform<i8:f32, 0.05:-3>
func.func @moved(%x: tensor<4x6xf32>, %z: tensor<f32>) -> (tensor<9x4xf32>, tensor<2x3x4xf32>) {
  %p = stablehlo.uniform_quantize %x : (tensor<4x6xf32>) -> tensor<4x6x!a>
  %q = stablehlo.uniform_quantize %z : (tensor<f32>) -> tensor<!a>
  %0 = stablehlo.transpose %p, dims = [1, 0] : (tensor<4x6x!a>) -> tensor<6x4x!a>
  %1 = stablehlo.pad %0, %q, low = [1, 0], high = [2, 0], interior = [0, 0] : (tensor<6x4x!a>, tensor<!a>) -> tensor<9x4x!a>
  %2 = stablehlo.reverse %1, dims = [0] : tensor<9x4x!a>
  %3 = stablehlo.slice %2 [0:6, 0:4] : (tensor<9x4x!a>) -> tensor<6x4x!a>
  %4 = stablehlo.reshape %3 : (tensor<6x4x!a>) -> tensor<2x3x4x!a>
  %5 = stablehlo.uniform_dequantize %2 : (tensor<9x4x!a>) -> tensor<9x4xf32>
  %6 = stablehlo.uniform_dequantize %4 : (tensor<2x3x4x!a>) -> tensor<2x3x4xf32>
  return %5, %6 : tensor<9x4xf32>, tensor<2x3x4xf32>
}
// -----
!a = !quant.uniform<i8:f32, 0.05:-3>
!w = !quant.uniform<i8:f32, 0.03>
!r = !quant.uniform<i8:f32, 0.2:11>
func.func @dot_general(%x: tensor<2x4x3x6xf32>, %y: tensor<6x5x2x3xf32>) -> tensor<2x4x5xf32> {
  %p = stablehlo.uniform_quantize %x : (tensor<2x4x3x6xf32>) -> tensor<2x4x3x6x!a>
  %q = stablehlo.uniform_quantize %y : (tensor<6x5x2x3xf32>) -> tensor<6x5x2x3x!w>
  %0 = stablehlo.dot_general %p, %q, batching_dims = [0] x [2], contracting_dims = [3, 2] x [0, 3] : (tensor<2x4x3x6x!a>, tensor<6x5x2x3x!w>) -> tensor<2x4x5x!r>
  %1 = stablehlo.uniform_dequantize %0 : (tensor<2x4x5x!r>) -> tensor<2x4x5xf32>
  return %1 : tensor<2x4x5xf32>
}
// -----
!a = !quant.uniform<i8:f32, 0.05:-3>
!w = !quant.uniform<i8:f32:1, {0.03, 0.01, 0.5}>
!r = !quant.uniform<i32:f32:1, {0.0015, 0.0005, 0.025}>
!s = !quant.uniform<i8:f32, 0.2:11>
func.func @dot_per_axis(%x: tensor<4x6xf32>, %y: tensor<6x3xf32>) -> (tensor<4x3xf32>, tensor<4x3xf32>) {
  %p = stablehlo.uniform_quantize %x : (tensor<4x6xf32>) -> tensor<4x6x!a>
  %q = stablehlo.uniform_quantize %y : (tensor<6x3xf32>) -> tensor<6x3x!w>
  %0 = stablehlo.dot_general %p, %q, contracting_dims = [1] x [0] : (tensor<4x6x!a>, tensor<6x3x!w>) -> tensor<4x3x!r>
  %1 = stablehlo.uniform_quantize %0 : (tensor<4x3x!r>) -> tensor<4x3x!s>
  %2 = stablehlo.uniform_dequantize %0 : (tensor<4x3x!r>) -> tensor<4x3xf32>
  %3 = stablehlo.uniform_dequantize %1 : (tensor<4x3x!s>) -> tensor<4x3xf32>
  return %2, %3 : tensor<4x3xf32>, tensor<4x3xf32>
}
// -----
!w = !quant.uniform<i8:f32:1, {0.03, 0.01, 0.5}>
func.func @hybrid(%x: tensor<4x6xf32>, %y: tensor<6x3xf32>) -> tensor<4x3xf32> {
  %q = stablehlo.uniform_quantize %y : (tensor<6x3xf32>) -> tensor<6x3x!w>
  %0 = stablehlo.dot_general %x, %q, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3x!w>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}
// -----
!a = !quant.uniform<i8:f32, 0.0625:-3>
!w = !quant.uniform<i8:f32:3, {0.03125, 0.015625, 0.5, 0.25}>
!r = !quant.uniform<i8:f32, 0.25:11>
func.func @convolution(%x: tensor<2x7x8x6xf32>, %y: tensor<3x2x3x4xf32>) -> tensor<2x4x8x4xf32> {
  %p = stablehlo.uniform_quantize %x : (tensor<2x7x8x6xf32>) -> tensor<2x7x8x6x!a>
  %q = stablehlo.uniform_quantize %y : (tensor<3x2x3x4xf32>) -> tensor<3x2x3x4x!w>
  %0 = stablehlo.convolution(%p, %q) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {stride = [2, 1], pad = [[1, 2], [1, 1]], rhs_dilate = [1, 2]}
    {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<2x7x8x6x!a>, tensor<3x2x3x4x!w>) -> tensor<2x4x8x4x!r>
  %1 = stablehlo.uniform_dequantize %0 : (tensor<2x4x8x4x!r>) -> tensor<2x4x8x4xf32>
  return %1 : tensor<2x4x8x4xf32>
}
// -----
!a = !quant.uniform<i8:f32, 0.05:-3>
!w = !quant.uniform<i8:f32, 0.03:2>
!r = !quant.uniform<i8:f32, 0.2:11>
func.func @transposed_convolution(%x: tensor<2x3x5xf32>, %y: tensor<4x3x3xf32>) -> tensor<2x4x11xf32> {
  %p = stablehlo.uniform_quantize %x : (tensor<2x3x5xf32>) -> tensor<2x3x5x!a>
  %q = stablehlo.uniform_quantize %y : (tensor<4x3x3xf32>) -> tensor<4x3x3x!w>
  %0 = stablehlo.convolution(%p, %q) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0],
    window = {pad = [[2, 2]], lhs_dilate = [2]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x3x5x!a>, tensor<4x3x3x!w>) -> tensor<2x4x11x!r>
  %1 = stablehlo.uniform_dequantize %0 : (tensor<2x4x11x!r>) -> tensor<2x4x11xf32>
  return %1 : tensor<2x4x11xf32>
}
// -----
!a = !quant.uniform<i8:f32, 0.05:-3>
func.func @bodies(%x: tensor<1x4x6xf32>, %z: tensor<f32>) -> (tensor<1x6xf32>, tensor<1x2x6xf32>) {
  %p = stablehlo.uniform_quantize %x : (tensor<1x4x6xf32>) -> tensor<1x4x6x!a>
  %q = stablehlo.uniform_quantize %z : (tensor<f32>) -> tensor<!a>
  %0 = stablehlo.reduce(%p init: %q) applies stablehlo.add across dimensions = [1] : (tensor<1x4x6x!a>, tensor<!a>) -> tensor<1x6x!a>
  %1 = "stablehlo.reduce_window"(%p, %q) ({
    ^bb0(%l: tensor<!a>, %r: tensor<!a>):
      %m = stablehlo.maximum %l, %r : tensor<!a>
      stablehlo.return %m : tensor<!a>
  }) {window_dimensions = array<i64: 1, 2, 1>, window_strides = array<i64: 1, 2, 1>} : (tensor<1x4x6x!a>, tensor<!a>) -> tensor<1x2x6x!a>
  %2 = stablehlo.uniform_dequantize %0 : (tensor<1x6x!a>) -> tensor<1x6xf32>
  %3 = stablehlo.uniform_dequantize %1 : (tensor<1x2x6x!a>) -> tensor<1x2x6xf32>
  return %2, %3 : tensor<1x6xf32>, tensor<1x2x6xf32>
}
// -----
!a = !quant.uniform<i8:f32, 0.05:-3>
!b = !quant.uniform<i8:f32, 0.11:20>
func.func @loop(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %p = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> tensor<4x!a>
  %q = stablehlo.uniform_quantize %y : (tensor<4xf32>) -> tensor<4x!b>
  %n = stablehlo.constant dense<3> : tensor<i32>
  %0:3 = stablehlo.while(%i = %n, %s = %p, %t = %q) : tensor<i32>, tensor<4x!a>, tensor<4x!b>
    cond {
      %k = stablehlo.constant dense<0> : tensor<i32>
      %1 = stablehlo.compare GT, %i, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %1 : tensor<i1>
    } do {
      %k = stablehlo.constant dense<1> : tensor<i32>
      %1 = stablehlo.subtract %i, %k : tensor<i32>
      %2 = stablehlo.add %s, %t : (tensor<4x!a>, tensor<4x!b>) -> tensor<4x!a>
      stablehlo.return %1, %2, %t : tensor<i32>, tensor<4x!a>, tensor<4x!b>
    }
  %5 = stablehlo.uniform_dequantize %0#1 : (tensor<4x!a>) -> tensor<4xf32>
  return %5 : tensor<4xf32>
}
// -----
!a = !quant.uniform<i8:f32, 0.05:-3>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %p = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> tensor<4x!a>
  %c = stablehlo.constant() {value = dense<[3, -100, 127, 0]> : tensor<4xi8>} : () -> tensor<4x!a>
  %0 = call @twice(%p) : (tensor<4x!a>) -> tensor<4x!a>
  %1 = stablehlo.add %0, %c : tensor<4x!a>
  %2 = stablehlo.uniform_dequantize %1 : (tensor<4x!a>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}
func.func private @twice(%x: tensor<4x!a>) -> tensor<4x!a> {
  %0 = stablehlo.add %x, %x : tensor<4x!a>
  return %0 : tensor<4x!a>
}
// -----
!a = !quant.uniform<i32:f32, 0.0001:5>
func.func @wide(%x: tensor<4x6xf32>, %y: tensor<4x6xf32>) -> tensor<4x6xf32> {
  %p = stablehlo.uniform_quantize %x : (tensor<4x6xf32>) -> tensor<4x6x!a>
  %q = stablehlo.uniform_quantize %y : (tensor<4x6xf32>) -> tensor<4x6x!a>
  %0 = stablehlo.multiply %p, %q : tensor<4x6x!a>
  %1 = stablehlo.uniform_dequantize %0 : (tensor<4x6x!a>) -> tensor<4x6xf32>
  return %1 : tensor<4x6xf32>
}
// -----
!a = !quant.uniform<i8:f32, 0.05:-3>
func.func @gathered(%x: tensor<4x6xf32>) -> tensor<2x6xf32> {
  %p = stablehlo.uniform_quantize %x : (tensor<4x6xf32>) -> tensor<4x6x!a>
  %i = stablehlo.constant dense<[[3], [1]]> : tensor<2x1xi32>
  %0 = "stablehlo.gather"(%p, %i) {
    dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
    slice_sizes = array<i64: 1, 6>, indices_are_sorted = false
  } : (tensor<4x6x!a>, tensor<2x1xi32>) -> tensor<2x6x!a>
  %1 = stablehlo.uniform_dequantize %0 : (tensor<2x6x!a>) -> tensor<2x6xf32>
  return %1 : tensor<2x6xf32>
}
// -----
!a = !quant.uniform<i8:f32, 0.05:-3>
func.func @sorted(%x: tensor<6xf32>, %y: tensor<6xf32>) -> (tensor<6xf32>, tensor<6xf32>) {
  %p = stablehlo.uniform_quantize %x : (tensor<6xf32>) -> tensor<6x!a>
  %0:2 = "stablehlo.sort"(%p, %y) ({
    ^bb0(%l: tensor<!a>, %r: tensor<!a>, %s: tensor<f32>, %t: tensor<f32>):
      %m = stablehlo.compare LT, %l, %r, FLOAT : (tensor<!a>, tensor<!a>) -> tensor<i1>
      stablehlo.return %m : tensor<i1>
  }) {dimension = 0 : i64, is_stable = true} : (tensor<6x!a>, tensor<6xf32>) -> (tensor<6x!a>, tensor<6xf32>)
  %1 = stablehlo.uniform_dequantize %0#0 : (tensor<6x!a>) -> tensor<6xf32>
  return %1, %0#1 : tensor<6xf32>, tensor<6xf32>
}
