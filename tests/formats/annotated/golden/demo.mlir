func.func @main(%x: tensor<1x8xf32>) -> (tensor<1x4xf32>) attributes {qplan.name = "demo", qplan.inputs = ["x"], qplan.outputs = ["y"]} {
  %w = "qplan.constant"() {qplan.name = "w", range = [-0.5 : f64, 0.5 : f64]} : () -> tensor<8x4xf32>
  %y = "qplan.region"(%x, %w) ({}) {kernel = "fully_connected", qplan.name = "fc1", qplan.values = ["y"], input_specs = [!quant.calibrated<f32<-1.0:1.0>>, f32, none], output_specs = [!quant.calibrated<f32<-2.0:2.0>>]}
    : (tensor<1x8xf32>, tensor<8x4xf32>) -> tensor<1x4xf32>
  func.return %y : tensor<1x4xf32>
}
