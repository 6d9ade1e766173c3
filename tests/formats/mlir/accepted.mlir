// Casts of scalars and of tensors of every rank; both syntaxes.
!q = !quant.uniform<i8:f32, 0.5:3>
func.func @casts(%s: f32, %t: tensor<f32>, %r: tensor<2x?xf32>, %u: tensor<*xf32>) -> (!q, tensor<!q>, tensor<2x?x!q>, tensor<*x!q>) {
  %0 = quant.qcast %s : f32 to !q
  %1 = "quant.qcast"(%t) : (tensor<f32>) -> tensor<!q>
  %2 = quant.qcast %r : tensor<2x?xf32> to tensor<2x?x!q>
  %3 = quant.qcast %u {note = "kept"} : tensor<*xf32> to tensor<*x!q>
  %4 = quant.dcast %0 : !q to f32
  %5 = "quant.dcast"(%1) : (tensor<!q>) -> tensor<f32>
  %6 = quant.scast %2 : tensor<2x?x!q> to tensor<2x?xi8>
  %7 = quant.scast %6 : tensor<2x?xi8> to tensor<2x?x!q>
  return %0, %1, %7, %3 : !q, tensor<!q>, tensor<2x?x!q>, tensor<*x!q>
}

// -----
// Per axis: static, dynamic and unranked; unsigned storage is stored in signless integers.
!q = !quant.uniform<u8<1:255>:f16:1, {0.5, 0.25:7, 1.0}>
func.func @per_axis(%a: tensor<4x3xf16>, %b: tensor<?x?xf16>, %c: tensor<*xf16>) -> tensor<*xi8> {
  %0 = quant.qcast %a : tensor<4x3xf16> to tensor<4x3x!q>
  %1 = quant.qcast %b : tensor<?x?xf16> to tensor<?x?x!q>
  %2 = quant.qcast %c : tensor<*xf16> to tensor<*x!q>
  %3 = quant.scast %2 : tensor<*x!q> to tensor<*xi8>
  func.return %3 : tensor<*xi8>
}

// -----
// Blocks: one axis, two, none; the whole axis may be one block.
!one = !quant.uniform<i4:f32:{1:2}, {{0.5, 0.25:1}}>
!two = !quant.uniform<i4:f32:{0:3, 1:4}, {{0.5}, {0.25}}>
!none = !quant.uniform<i4:f32:{}, {{0.5}}>
func.func @blocks(%x: tensor<6x4xf32>, %d: tensor<?x?xf32>) -> tensor<6x4x!one> {
  %0 = quant.qcast %x : tensor<6x4xf32> to tensor<6x4x!one>
  %1 = quant.qcast %x : tensor<6x4xf32> to tensor<6x4x!two>
  %2 = quant.qcast %x : tensor<6x4xf32> to tensor<6x4x!none>
  %3 = quant.qcast %d : tensor<?x?xf32> to tensor<?x?x!two>
  return %0 : tensor<6x4x!one>
}

// -----
// Statistics, of the layer and of an axis.
func.func @statistics(%x: tensor<8x2xf32>) -> tensor<8x2xf32> {
  %0 = "quant.stats"(%x) {layerStats = dense<[-1.0, 2.0]> : tensor<2xf32>} : (tensor<8x2xf32>) -> tensor<8x2xf32>
  %1 = "quant.stats"(%0) {
    layerStats = dense<[-1.0, 2.0]> : tensor<2xf32>,
    axisStats = dense<[[-1.0, 1.0], [-0.5, 2.0]]> : tensor<2x2xf32>, axis = 1 : i64
  } : (tensor<8x2xf32>) -> tensor<8x2xf32>
  return %1 : tensor<8x2xf32>
}

// -----
// Regions: the historic attribute becomes `kernel`; specs of every kind, several facts, absent ports, wide storage.
func.func @regions(%a: tensor<4xf32>, %b: tensor<4xi64>) -> tensor<4xf32> {
  %0 = "quant.region"(%a, %a, %b) ({
  ^bb0(%x: tensor<4xf32>, %y: tensor<4xf32>, %z: tensor<4xi64>):
    %1 = "foo"(%x, %y, %z) : (tensor<4xf32>, tensor<4xf32>, tensor<4xi64>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [!quant.uniform<i8:f32, 0.5>, [!quant.any<i4>, !quant.calibrated<f32<1.0:1.0>>], none, i64],
      output_specs = [!quant.uniform<i48:f32, 0.5>], logical_kernel = "k"}
    : (tensor<4xf32>, tensor<4xf32>, tensor<4xi64>) -> tensor<4xf32>
  %2 = "quant.region"(%0) ({}) {kernel = "l", input_specs = [bf16], output_specs = [f32]} : (tensor<4xf32>) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----
// Other dialects: custom form where we know it, generic form where we do not; calls, private functions, locations.
#map = affine_map<(d0, d1) -> (d0, d1 floordiv 2)>
#where = loc("model.py":3:4)
module @m attributes {some.text = "x", some.type = !quant.any<i8<-8:7>:f32>} {
  func.func private @callee(tensor<4x!quant.uniform<ui8:f32, 0.5>>, tensor<?xf32>) -> (tensor<*xf32>, f32)
  func.func @other(%x: tensor<4x4xf32> {some.attr}, %s: tensor<4x2xf32>) -> tensor<4x4xf32> {
    %0 = arith.constant dense<5> : tensor<4xi8>
    %1 = arith.sitofp %0 : tensor<4xi8> to tensor<4xf32>
    %2 = "tosa.add"(%1, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %3 = "stablehlo.custom_call"(%2) <{call_target_name = "f"}> {more = [1 : i8, @callee]} : (tensor<4xf32>) -> tensor<4xf32> loc(#where)
    %e = tensor.empty() : tensor<4x4xf32>
    %4 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, #map, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x, %s : tensor<4x4xf32>, tensor<4x2xf32>) outs(%e : tensor<4x4xf32>) {
    ^bb0(%a: f32, %b: f32, %o: f32):
      %5 = arith.divf %a, %b : f32
      linalg.yield %5 : f32
    } -> tensor<4x4xf32>
    %6:2 = "some.pair"() : () -> (tensor<4x!quant.uniform<ui8:f32, 0.5>>, tensor<?xf32>)
    %7:2 = call @callee(%6#0, %6#1) : (tensor<4x!quant.uniform<ui8:f32, 0.5>>, tensor<?xf32>) -> (tensor<*xf32>, f32)
    return %4 : tensor<4x4xf32>
  }
}

// -----
// No terminator that anybody knows: the last op may be one. A scalar may have a per-axis type where no cast does.
func.func @open(%x: f32) {
  "some.op"(%x) : (f32) -> !quant.uniform<i8:f32:0, {0.5, 1.0}>
}

// -----
// A zero point outside the storage is a warning.
func.func @odd(%x: f32) -> !quant.uniform<i8<-8:7>:f32, 0.5:10> {
  %0 = quant.qcast %x : f32 to !quant.uniform<i8<-8:7>:f32, 0.5:10>
  %1 = quant.qcast %x : f32 to !quant.uniform<i8<-8:7>:f32, 0.5:10>
  return %0 : !quant.uniform<i8<-8:7>:f32, 0.5:10>
}

// -----
// Nothing but aliases.
!unused = !quant.uniform<i8:f32, 0.5>
