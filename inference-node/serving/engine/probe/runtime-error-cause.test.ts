import test from 'ava';
import { saysMemoryRanOut } from '../engine-protocol.ts';
import { causeOf } from './runtime-error-cause.ts';

const ARENA =
  '/onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:360 void* ' +
  'onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) ' +
  'Failed to allocate memory for requested buffer of size 6442450944\n';
const RESHAPE =
  "Non-zero status code returned while running Reshape node. Name:'window_partition' Status " +
  'Message: /onnxruntime_src/onnxruntime/core/providers/cpu/tensor/reshape_helper.h:47 ' +
  'onnxruntime::ReshapeHelper::ReshapeHelper(const onnxruntime::TensorShape&, ' +
  'onnxruntime::TensorShapeVector&, bool) input_shape_size == size was false. The input tensor ' +
  'cannot be reshaped to the requested shape. Input shape:{1,1,500,500}';
const IR =
  'Load model from /data/a b.onnx failed:/onnxruntime_src/onnxruntime/core/graph/model.cc:202 ' +
  'onnxruntime::Model::Model(onnx::ModelProto&&, const PathString&, const ' +
  'onnxruntime::IOnnxRuntimeOpSchemaRegistryList*, const onnxruntime::logging::Logger&, const ' +
  'onnxruntime::ModelOptions&) Unsupported model IR version: 99, max supported IR version: 13';

test('the cause of a runtime’s message is kept, with the graph’s node', t => {
  for (const [text, cause] of [
    ['', 'the runtime does not say why'],
    [
      RESHAPE,
      'Reshape "window_partition": The input tensor cannot be reshaped to the requested shape. ' +
        'Input shape:{1,1,500,500}',
    ],
    [IR, 'Unsupported model IR version: 99, max supported IR version: 13'],
    [
      '[ONNXRuntimeError] : 1 : FAIL : External initializer: w offset',
      'External initializer: w offset',
    ],
    ["tensorprotoutils.cc:1463 Validate Initializer 'w' is large", "Initializer 'w' is large"],
  ] as const) {
    t.is(causeOf(text), cause);
  }
  t.true(saysMemoryRanOut(ARENA));
  t.true(saysMemoryRanOut('std::bad_alloc'));
  t.false(saysMemoryRanOut(RESHAPE));
});
