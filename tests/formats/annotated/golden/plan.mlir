builtin.module attributes {qplan.plan = "qplan.plan/1"} {
func.func @main(%x: tensor<1x8xf32>) -> (tensor<1x4xf32>) attributes {qplan.name = "demo", qplan.inputs = ["x"], qplan.outputs = ["y#0"], qplan.specs = "ports", qplan.facts = [["x", [!quant.calibrated<f32<-1.0:1.0>>]], ["y", [!quant.calibrated<f32<-2.0:2.0>>]]]} {
  %w = "qplan.constant"() {qplan.name = "w", range = [-0.5 : f64, 0.5 : f64]} : () -> tensor<8x4xf32>
  %x_0 = "qplan.region"(%x) ({}) {kernel = "qplan.rescale", qplan.name = "x#0", qplan.values = ["x#0"], input_specs = [f32], output_specs = [!quant.uniform<i8:f32, 0.007843137718737125:-1>], qplan.attributes = {kind = "quantize", to_pin = false}}
    : (tensor<1x8xf32>) -> tensor<1x8xf32>
  %y = "qplan.region"(%x_0, %w) ({}) {kernel = "fully_connected", qplan.name = "fc1", qplan.values = ["y"], input_specs = [!quant.uniform<i8:f32, 0.007843137718737125:-1>, !quant.uniform<i8<-127:127>:f32, 0.003937007859349251>, none], output_specs = [!quant.uniform<i8:f32, 0.01568627543747425>], qplan.row = "demo.yaml:12", qplan.accumulator_bits = 18 : i64}
    : (tensor<1x8xf32>, tensor<8x4xf32>) -> tensor<1x4xf32>
  %y_0 = "qplan.region"(%y) ({}) {kernel = "qplan.rescale", qplan.name = "y#0", qplan.values = ["y#0"], input_specs = [!quant.uniform<i8:f32, 0.01568627543747425>], output_specs = [f32], qplan.attributes = {kind = "dequantize", to_pin = false}}
    : (tensor<1x4xf32>) -> tensor<1x4xf32>
  func.return %y_0 : tensor<1x4xf32>
}
}
{-#
  external_resources: {
    qplan: {
      l0: "{",
      l1: " \"format\": \"qplan.plan/1\",",
      l2: " \"key\": \"sha256:4b\",",
      l3: " \"model\": \"sha256:6d\",",
      l4: " \"target\": {",
      l5: "  \"id\": \"demo\",",
      l6: "  \"version\": \"1.0.0\",",
      l7: "  \"digest\": \"sha256:74\",",
      l8: "  \"file\": \"demo.yaml\",",
      l9: "  \"rescale_single_consumer\": false,",
      l10: "  \"costs\": {\"requantize\": 1.0, \"zero_point\": 0.25, \"clamp\": 0.1, \"widen\": 0.5, \"narrow\": 0.5, \"quantize\": 1.0, \"dequantize\": 1.0, \"bit_price\": 2.0, \"free_bits\": 0.5, \"max_clip\": 0.01, \"max_bits_lost\": null},",
      l11: "  \"rows\": {",
      l12: "   \"fully_connected@12\": {\"kernel\": \"fully_connected\", \"requantize\": \"gemmlowp\", \"source\": \"demo.yaml:12\", \"in\": [{\"name\": \"x\", \"type\": {\"storage\": \"i8\"}}, {\"name\": \"w\", \"type\": {\"storage\": \"i8<-127:127>\", \"symmetric\": true}}, {\"name\": \"b\", \"optional\": true, \"type\": {\"storage\": \"i32\"}}], \"out\": [{\"name\": \"y\", \"type\": {\"storage\": \"i8\"}}]}",
      l13: "  }",
      l14: " },",
      l15: " \"options\": {\"strategy\": \"minimal\"},",
      l16: " \"cost\": 12.0,",
      l17: " \"excused\": 0.0,",
      l18: " \"optimal\": true,",
      l19: " \"bound\": 12.0,",
      l20: " \"warnings\": [],",
      l21: " \"values\": {",
      l22: "  \"x\": {\"type\": null, \"bits_lost\": 0.0, \"clip\": 0.0, \"decided_by\": null},",
      l23: "  \"y\": {\"type\": \"!quant.uniform<i8:f32, 0.01568627543747425>\", \"bits_lost\": 0.25, \"clip\": 0.0, \"decided_by\": 1}",
      l24: " },",
      l25: " \"steps\": [",
      l26: "  {\"n\": 1, \"port\": \"fc1.out[0]\", \"type\": \"!quant.uniform<i8:f32, 0.01568627543747425>\", \"rule\": \"free_scale\", \"source\": \"demo.yaml:12\", \"because\": [], \"refused\": []}",
      l27: " ],",
      l28: " \"words\": 2",
      l29: "}"
    }
  }
#-}
