func.func @f(%x: f32) {
  %0 = quant.qcast %x : f32 to f32
  return
}
// -----
func.func @f(%x: !quant.uniform<i8:f32, 0.5>) {
  %0 = quant.qcast %x : !quant.uniform<i8:f32, 0.5> to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: i32) {
  %0 = quant.qcast %x : i32 to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: f64) {
  %0 = quant.qcast %x : f64 to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: tensor<f32>) {
  %0 = quant.qcast %x : tensor<f32> to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: f32) {
  %0 = quant.qcast %x : f32 to tensor<!quant.uniform<i8:f32, 0.5>>
  return
}
// -----
func.func @f(%x: tensor<f32>) {
  %0 = quant.qcast %x : tensor<f32> to tensor<*x!quant.uniform<i8:f32, 0.5>>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %0 = quant.qcast %x : tensor<2x3xf32> to tensor<2x?x!quant.uniform<i8:f32, 0.5>>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %0 = quant.qcast %x : tensor<2x3xf32> to tensor<3x2x!quant.uniform<i8:f32, 0.5>>
  return
}
// -----
func.func @f(%x: f32) {
  %0 = quant.qcast %x : f32 to !quant.any<i8:f32>
  return
}
// -----
func.func @f(%x: f32) {
  %0 = quant.qcast %x : f32 to !quant.uniform<i8:f32:1, {0.5, 0.25}>
  return
}
// -----
func.func @f(%x: tensor<2xf32>) {
  %0 = quant.qcast %x : tensor<2xf32> to tensor<2x!quant.uniform<i8:f32:1, {0.5, 0.25}>>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %0 = quant.qcast %x : tensor<2x3xf32> to tensor<2x3x!quant.uniform<i8:f32:1, {0.5, 0.25}>>
  return
}
// -----
func.func @f(%x: f32) {
  %0 = quant.qcast %x : f32 to !quant.uniform<i8:f32:{0:1}, {0.5}>
  return
}
// -----
func.func @f(%x: tensor<*xf32>) {
  %0 = quant.qcast %x : tensor<*xf32> to tensor<*x!quant.uniform<i8:f32:{0:1}, {0.5}>>
  return
}
// -----
func.func @f(%x: tensor<6x2xf32>) {
  %0 = quant.qcast %x : tensor<6x2xf32> to tensor<6x2x!quant.uniform<i8:f32:{2:1}, {{0.5}}>>
  return
}
// -----
func.func @f(%x: tensor<6x2xf32>) {
  %0 = quant.qcast %x : tensor<6x2xf32> to tensor<6x2x!quant.uniform<i8:f32:{0:4}, {{0.5}}>>
  return
}
// -----
func.func @f(%x: tensor<6x2xf32>) {
  %0 = quant.qcast %x : tensor<6x2xf32> to tensor<6x2x!quant.uniform<i8:f32:{0:8}, {{0.5}}>>
  return
}
// -----
func.func @f(%x: tensor<6x2xf32>) {
  %0 = quant.qcast %x : tensor<6x2xf32> to tensor<6x2x!quant.uniform<i8:f32:{0:3}, {{0.5, 1.0}}>>
  return
}
// -----
func.func @f(%x: tensor<6x2xf32>) {
  %0 = quant.qcast %x : tensor<6x2xf32> to tensor<6x2x!quant.uniform<i8:f32:{0:3}, {{0.5}}>>
  return
}
// -----
func.func @f(%x: tensor<6x2xf32>) {
  %0 = quant.qcast %x : tensor<6x2xf32> to tensor<6x2x!quant.uniform<i8:f32:{0:3}, {0.5, 1.0}>>
  return
}
// -----
func.func @f(%x: tensor<?x2xf32>) {
  %0 = quant.qcast %x : tensor<?x2xf32> to tensor<?x2x!quant.uniform<i8:f32:{}, {{0.5, 1.0}}>>
  return
}
// -----
func.func @f(%x: f32) {
  %0 = quant.dcast %x : f32 to f32
  return
}
// -----
func.func @f(%x: !quant.uniform<i8:f32, 0.5>) {
  %0 = quant.dcast %x : !quant.uniform<i8:f32, 0.5> to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: !quant.uniform<i8:f32, 0.5>) {
  %0 = quant.dcast %x : !quant.uniform<i8:f32, 0.5> to i32
  return
}
// -----
func.func @f(%x: !quant.uniform<i8:f32, 0.5>) {
  %0 = quant.dcast %x : !quant.uniform<i8:f32, 0.5> to f64
  return
}
// -----
func.func @f(%x: !quant.uniform<i8:f32, 0.5>) {
  %0 = quant.dcast %x : !quant.uniform<i8:f32, 0.5> to tensor<f32>
  return
}
// -----
func.func @f(%x: tensor<!quant.uniform<i8:f32, 0.5>>) {
  %0 = quant.dcast %x : tensor<!quant.uniform<i8:f32, 0.5>> to f32
  return
}
// -----
func.func @f(%x: tensor<*x!quant.uniform<i8:f32, 0.5>>) {
  %0 = quant.dcast %x : tensor<*x!quant.uniform<i8:f32, 0.5>> to tensor<f32>
  return
}
// -----
func.func @f(%x: tensor<2x?x!quant.uniform<i8:f32, 0.5>>) {
  %0 = quant.dcast %x : tensor<2x?x!quant.uniform<i8:f32, 0.5>> to tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<3x2x!quant.uniform<i8:f32, 0.5>>) {
  %0 = quant.dcast %x : tensor<3x2x!quant.uniform<i8:f32, 0.5>> to tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: !quant.any<i8:f32>) {
  %0 = quant.dcast %x : !quant.any<i8:f32> to f32
  return
}
// -----
func.func @f(%x: !quant.uniform<i8:f32:1, {0.5, 0.25}>) {
  %0 = quant.dcast %x : !quant.uniform<i8:f32:1, {0.5, 0.25}> to f32
  return
}
// -----
func.func @f(%x: tensor<2x!quant.uniform<i8:f32:1, {0.5, 0.25}>>) {
  %0 = quant.dcast %x : tensor<2x!quant.uniform<i8:f32:1, {0.5, 0.25}>> to tensor<2xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3x!quant.uniform<i8:f32:1, {0.5, 0.25}>>) {
  %0 = quant.dcast %x : tensor<2x3x!quant.uniform<i8:f32:1, {0.5, 0.25}>> to tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: !quant.uniform<i8:f32:{0:1}, {0.5}>) {
  %0 = quant.dcast %x : !quant.uniform<i8:f32:{0:1}, {0.5}> to f32
  return
}
// -----
func.func @f(%x: tensor<*x!quant.uniform<i8:f32:{0:1}, {0.5}>>) {
  %0 = quant.dcast %x : tensor<*x!quant.uniform<i8:f32:{0:1}, {0.5}>> to tensor<*xf32>
  return
}
// -----
func.func @f(%x: tensor<6x2x!quant.uniform<i8:f32:{2:1}, {{0.5}}>>) {
  %0 = quant.dcast %x : tensor<6x2x!quant.uniform<i8:f32:{2:1}, {{0.5}}>> to tensor<6x2xf32>
  return
}
// -----
func.func @f(%x: tensor<6x2x!quant.uniform<i8:f32:{0:4}, {{0.5}}>>) {
  %0 = quant.dcast %x : tensor<6x2x!quant.uniform<i8:f32:{0:4}, {{0.5}}>> to tensor<6x2xf32>
  return
}
// -----
func.func @f(%x: tensor<6x2x!quant.uniform<i8:f32:{0:8}, {{0.5}}>>) {
  %0 = quant.dcast %x : tensor<6x2x!quant.uniform<i8:f32:{0:8}, {{0.5}}>> to tensor<6x2xf32>
  return
}
// -----
func.func @f(%x: tensor<6x2x!quant.uniform<i8:f32:{0:3}, {{0.5, 1.0}}>>) {
  %0 = quant.dcast %x : tensor<6x2x!quant.uniform<i8:f32:{0:3}, {{0.5, 1.0}}>> to tensor<6x2xf32>
  return
}
// -----
func.func @f(%x: tensor<6x2x!quant.uniform<i8:f32:{0:3}, {{0.5}}>>) {
  %0 = quant.dcast %x : tensor<6x2x!quant.uniform<i8:f32:{0:3}, {{0.5}}>> to tensor<6x2xf32>
  return
}
// -----
func.func @f(%x: tensor<6x2x!quant.uniform<i8:f32:{0:3}, {0.5, 1.0}>>) {
  %0 = quant.dcast %x : tensor<6x2x!quant.uniform<i8:f32:{0:3}, {0.5, 1.0}>> to tensor<6x2xf32>
  return
}
// -----
func.func @f(%x: tensor<?x2x!quant.uniform<i8:f32:{}, {{0.5, 1.0}}>>) {
  %0 = quant.dcast %x : tensor<?x2x!quant.uniform<i8:f32:{}, {{0.5, 1.0}}>> to tensor<?x2xf32>
  return
}
// -----
func.func @f(%x: i8) {
  %0 = quant.scast %x : i8 to i8
  return
}
// -----
func.func @f(%x: !quant.uniform<i8:f32, 0.5>) {
  %0 = quant.scast %x : !quant.uniform<i8:f32, 0.5> to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: f32) {
  %0 = quant.scast %x : f32 to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: ui8) {
  %0 = quant.scast %x : ui8 to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: i16) {
  %0 = quant.scast %x : i16 to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: tensor<i8>) {
  %0 = quant.scast %x : tensor<i8> to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: tensor<2xi8>) {
  %0 = quant.scast %x : tensor<2xi8> to tensor<?x!quant.uniform<i8:f32, 0.5>>
  return
}
// -----
func.func @f(%x: i8) {
  %0 = quant.scast %x : i8 to !quant.uniform<i8:f32:1, {0.5, 0.25}>
  return
}
// -----
func.func @f(%x: i8) {
  %0 = quant.scast %x : i8 to !quant.uniform<f8E5M2:f32, 0.5>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %0 = "quant.stats"(%x) {} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %0 = "quant.stats"(%x) {layerStats = dense<[-1, 1]> : tensor<2xi8>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %0 = "quant.stats"(%x) {layerStats = dense<[-1.0, 1.0, 2.0]> : tensor<3xf32>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %0 = "quant.stats"(%x) {layerStats = dense<[[-1.0, 1.0]]> : tensor<1x2xf32>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %0 = "quant.stats"(%x) {layerStats = dense<[-1.0, 1.0]> : tensor<2xf32>, axisStats = dense<[[-1.0, 1.0], [0.0, 1.0]]> : tensor<2x2xf32>} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %0 = "quant.stats"(%x) {layerStats = dense<[-1.0, 1.0]> : tensor<2xf32>, axisStats = dense<[[-1, 1], [0, 1]]> : tensor<2x2xi8>, axis = 0 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %0 = "quant.stats"(%x) {layerStats = dense<[-1.0, 1.0]> : tensor<2xf32>, axisStats = dense<[[-1.0, 1.0]]> : tensor<1x2xf32>, axis = 0 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %0 = "quant.stats"(%x) {layerStats = dense<[-1.0, 1.0]> : tensor<2xf32>, axisStats = dense<[-1.0, 1.0]> : tensor<2xf32>, axis = 0 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xf32>) {
  %0 = "quant.stats"(%x) {layerStats = dense<[-1.0, 1.0]> : tensor<2xf32>, axisStats = dense<[[-1.0, 1.0]]> : tensor<1x2xf32>, axis = 5 : i64} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3xi32>) {
  %0 = "quant.stats"(%x) {layerStats = dense<[-1.0, 1.0]> : tensor<2xf32>} : (tensor<2x3xi32>) -> tensor<2x3xi32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32], output_specs = [f32], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32, f32], output_specs = [f32], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [f32, f32], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [f32]} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [f32], kernel = 3 : i8} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, !quant.uniform<i8:f16, 0.5>], output_specs = [f32], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, i32], output_specs = [f32], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [i32], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [!quant.uniform<i8:f64, 0.5>], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [[!quant.any<i4>, !quant.any<i4:f16>]], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = ["f32"], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [!quant.uniform<i8:f32:0, {0.5, 1.0}>], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [!quant.uniform<i8:f32:{0:3}, {0.5}>], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [!quant.uniform<i8<-8:7>:f32, 0.5:10>], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [!quant.bipolar<f16, 0.5>], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %y) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [f32], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<3xf32>):
    %1 = "foo"(%a, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [f32], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>):
    %1 = "foo"(%a, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [f32], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "foo.end"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [f32], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"() : () -> ()
  }) {input_specs = [f32, f32], output_specs = [f32], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<4xf32>, %y: tensor<4xf32>) {
  %0 = "quant.region"(%x, %y) ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    %1 = "foo"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  ^bb1:
    "quant.return"(%1) : (tensor<4xf32>) -> ()
  }) {input_specs = [f32, f32], output_specs = [f32], kernel = "k"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return
}
// -----
func.func @f(%x: tensor<2x3x!quant.uniform<i8:f32:1, {0.5}>>) {
  "a.op"() : () -> ()
  return
}
// -----
func.func @f() {
  %0 = "a.op"() : () -> tensor<2x!quant.uniform<i8:f32:1, {0.5}>>
  return
}
// -----
func.func @f() {
  "a.op"() {t = !quant.any<i40>} : () -> ()
  return
}
// -----
func.func @f() {
  "a.op"() {t = [!quant.calibrated<f32<1.0:1.0>>]} : () -> ()
  return
}
// -----
func.func @f() {
  %0 = "quant.unknown"() : () -> f32
  return
}
// -----
func.func @f() {
  %0 = quant.qcast %x : f32
  return
}
// -----
func.func @f(%x: f32) {
  %0 = quant.qcast %y : f32 to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: f32) {
  %0 = quant.qcast %x, %x : f32 to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: f32) {
  %0 = "quant.qcast"(%x, %x) : (f32, f32) -> !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f(%x: f32) {
  %0 = "quant.dcast"(%1) : (!quant.uniform<i8:f32, 0.5>) -> f32
  %1 = quant.qcast %0 : f32 to !quant.uniform<i8:f32, 0.5>
  return
}
// -----
func.func @f() -> f32 {
  return
}
// -----
func.func @f() {
}
// -----
func.func @f() {
  %0 = arith.constant 1.0 : f32
}
// -----
func.func @f(
// -----
what is this
// -----
!q = i8
!q = i16
// -----
func.func @f(%x: !unknown) { return }
// -----
#loc = 3 garbage
