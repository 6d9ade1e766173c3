// Both casts of every granularity and rank.
!t = !quant.uniform<i8:f32, 0.25:-9>
!z = !quant.uniform<u8<3:200>:f16, 0.1>
func.func @per_tensor(%s: f32, %t: tensor<f32>, %r: tensor<?x3x?xf16>, %u: tensor<*xf32>) -> (!t, tensor<!t>, tensor<?x3x?x!z>, tensor<*x!t>) {
  %0 = quant.qcast %s : f32 to !t
  %1 = quant.qcast %t : tensor<f32> to tensor<!t>
  %2 = quant.qcast %r : tensor<?x3x?xf16> to tensor<?x3x?x!z>
  %3 = quant.qcast %u : tensor<*xf32> to tensor<*x!t>
  return %0, %1, %2, %3 : !t, tensor<!t>, tensor<?x3x?x!z>, tensor<*x!t>
}
func.func @back(%s: !t, %t: tensor<!t>, %r: tensor<?x3x?x!z>, %u: tensor<*x!t>) -> (f32, tensor<f32>, tensor<?x3x?xf16>, tensor<*xf32>) {
  %0 = quant.dcast %s : !t to f32
  %1 = quant.dcast %t : tensor<!t> to tensor<f32>
  %2 = quant.dcast %r : tensor<?x3x?x!z> to tensor<?x3x?xf16>
  %3 = quant.dcast %u : tensor<*x!t> to tensor<*xf32>
  return %0, %1, %2, %3 : f32, tensor<f32>, tensor<?x3x?xf16>, tensor<*xf32>
}

// -----
!a = !quant.uniform<i16<-300:300>:f32:1, {0.1:7, 0.2, 0.3:-2}>
!b = !quant.uniform<u4:f32:0, {0.1, 0.2}>
!first = !quant.uniform<i8:f64:0, {0.1, 0.2}>
func.func @per_axis(%x: tensor<2x3x?xf32>, %y: tensor<2xf32>, %u: tensor<*xf32>, %v: tensor<*xf64>) -> (tensor<2x3x?x!a>, tensor<2x!b>, tensor<*x!a>, tensor<*x!first>) {
  %0 = quant.qcast %x : tensor<2x3x?xf32> to tensor<2x3x?x!a>
  %1 = quant.qcast %y : tensor<2xf32> to tensor<2x!b>
  %2 = quant.qcast %u : tensor<*xf32> to tensor<*x!a>
  %3 = quant.qcast %v : tensor<*xf64> to tensor<*x!first>
  %4 = quant.dcast %0 : tensor<2x3x?x!a> to tensor<2x3x?xf32>
  %5 = quant.dcast %2 : tensor<*x!a> to tensor<*xf32>
  return %0, %1, %2, %3 : tensor<2x3x?x!a>, tensor<2x!b>, tensor<*x!a>, tensor<*x!first>
}

// -----
!a = !quant.uniform<i8:f32:{0:1, 2:3}, {{{0.1, 0.2:3}}, {{0.3, 0.4}}}>
!b = !quant.uniform<i4<-7:7>:f32:{1:2}, {{0.1, 0.2}}>
!c = !quant.uniform<i8:f32:{}, {{0.1:3}}>
func.func @blocks(%x: tensor<2x?x6xf32>, %y: tensor<?x4xf32>, %z: tensor<3x3x!c>) -> (tensor<2x?x6x!a>, tensor<?x4x!b>, tensor<3x3xf32>) {
  %0 = quant.qcast %x : tensor<2x?x6xf32> to tensor<2x?x6x!a>
  %1 = quant.qcast %y : tensor<?x4xf32> to tensor<?x4x!b>
  %2 = quant.dcast %z : tensor<3x3x!c> to tensor<3x3xf32>
  %3 = quant.dcast %0 : tensor<2x?x6x!a> to tensor<2x?x6xf32>
  return %0, %1, %2 : tensor<2x?x6x!a>, tensor<?x4x!b>, tensor<3x3xf32>
}

// -----
// Headers, calls and returns; a value returned twice; casts of the user's own.
!q = !quant.uniform<i8:f32, 0.5>
!u = !quant.uniform<u16:f32, 0.5:40000>
func.func private @callee(tensor<4x!q>, !u) -> (tensor<*x!q>, f32, !u)
func.func @caller(%a: tensor<4x!q>, %b: !u, %c: f32) -> (tensor<*x!q>, tensor<4x!q>, tensor<4x!q>, tensor<2x!q>) {
  %0:3 = call @callee(%a, %b) : (tensor<4x!q>, !u) -> (tensor<*x!q>, f32, !u)
  %1 = "some.op"(%0#0, %0#2, %a) : (tensor<*x!q>, !u, tensor<4x!q>) -> tensor<2x!q>
  %2 = quant.scast %a : tensor<4x!q> to tensor<4xi8>
  %3 = quant.scast %2 : tensor<4xi8> to tensor<4x!q>
  return %0#0, %a, %3, %1 : tensor<*x!q>, tensor<4x!q>, tensor<4x!q>, tensor<2x!q>
}

// -----
!one = !quant.uniform<i8:f32:{}, {{0.5:1}}>
!also = !quant.uniform<i8:f32:{0:4, 1:8}, {{0.5:1}}>
!axis = !quant.uniform<i8:f32:{1:1}, {{0.5, 0.25}}>
!both = !quant.uniform<i8:f32:{0:1, 1:8}, {{0.5}, {0.25}}>
!grid = !quant.uniform<i8:f32:{0:2, 1:1}, {{0.5, 0.25}, {1.0, 2.0}}>
func.func private @declared(tensor<?x?x!one>, tensor<?x?x!axis>) -> tensor<?x?x!both>
func.func @normal(%a: tensor<4x8x!one>, %b: tensor<4x8x!also>, %c: tensor<4x2x!axis>, %d: tensor<2x8x!both>, %e: tensor<4x2x!grid>) -> (tensor<4x8x!also>, tensor<4x2x!axis>) {
  %0 = quant.dcast %a : tensor<4x8x!one> to tensor<4x8xf32>
  %1 = quant.qcast %0 : tensor<4x8xf32> to tensor<4x8x!also>
  "some.op"(%d, %e) {kept = tensor<4x8x!one>} : (tensor<2x8x!both>, tensor<4x2x!grid>) -> ()
  return %1, %c : tensor<4x8x!also>, tensor<4x2x!axis>
}

// -----
// Pairs that meet again, chains of them, pairs that do not, and what nobody reads.
!q = !quant.uniform<i8:f32, 0.5>
!r = !quant.uniform<i8:f32, 0.25>
func.func @pairs(%x: tensor<4xf32>, %y: tensor<4x!q>, %i: tensor<4xi8>) -> (tensor<4xf32>, tensor<4x!q>, tensor<4x!r>, tensor<4xi8>, tensor<4x!r>) {
  %0 = quant.qcast %x : tensor<4xf32> to tensor<4x!q>
  %1 = quant.dcast %0 : tensor<4x!q> to tensor<4xf32>
  %2 = quant.qcast %1 : tensor<4xf32> to tensor<4x!r>
  %3 = quant.dcast %2 : tensor<4x!r> to tensor<4xf32>
  %4 = quant.dcast %y : tensor<4x!q> to tensor<4xf32>
  %5 = quant.qcast %4 : tensor<4xf32> to tensor<4x!q>
  %6 = quant.qcast %4 : tensor<4xf32> to tensor<4x!r>
  %7 = quant.scast %i : tensor<4xi8> to tensor<4x!q>
  %8 = quant.scast %7 : tensor<4x!q> to tensor<4xi8>
  %9 = quant.scast %8 : tensor<4xi8> to tensor<4x!r>
  %10 = quant.dcast %7 : tensor<4x!q> to tensor<4xf32>
  return %3, %5, %6, %8, %9 : tensor<4xf32>, tensor<4x!q>, tensor<4x!r>, tensor<4xi8>, tensor<4x!r>
}
