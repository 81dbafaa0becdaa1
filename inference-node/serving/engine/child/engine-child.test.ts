import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import { drawCheckPicture } from '../../prepared/answer-check.ts';
import { onEachRuntime } from '../../test/openvino.ts';
import { createModel, openPool, pidOf, QUICK, run } from '../../test/pool-harness.ts';
import { networkSocketsOf, openWatchedHome } from '../../test/watched-home.ts';
import { encodeProbeGraph, PROBE_SIZE_PX, PROBE_SPEC } from '../choice/gpu-probe-graph.ts';
import {
  type SessionSpec,
  saysDeviceIsGone,
  saysMemoryIsShort,
  shortenNativeError,
} from '../engine-protocol.ts';
import { createPlaneTables, fillAlpha, fillPlanes } from './graph-io.ts';
import { LoadedModel } from './loaded-model.ts';
import { InferenceSession } from './onnx-runtime.ts';

const test = ava.serial;

const ON_CPU =
  'This session contains graph nodes that are assigned to the default CPU EP, but fallback to CPU ' +
  'EP has been explicitly disabled by the user.';

/** Throws `message` unless the graph may run on the CPU. */
function standIn(context: ExecutionContext, message: string) {
  const stubs = sinon.createSandbox();
  context.teardown(() => stubs.restore());
  const written: string[] = [];
  const native = InferenceSession.create as (...all: unknown[]) => Promise<unknown>;
  const create = async (source: unknown, options: object) => {
    const { extra } = options as { extra: { session: { disable_cpu_ep_fallback?: string } } };
    if (extra.session.disable_cpu_ep_fallback === '1') throw new Error(message);
    return await native(source, { ...options, executionProviders: ['cpu'] });
  };
  stubs.replace(InferenceSession, 'create', create as typeof InferenceSession.create);
  stubs.replace(process.stderr, 'write', (text: string | Uint8Array) => {
    written.push(String(text));
    return true;
  });
  return { written, restore: () => stubs.restore() };
}

function load(more: Partial<SessionSpec>) {
  const spec: SessionSpec = { ...PROBE_SPEC, provider: 'cuda', ...more };
  return LoadedModel.load(spec, encodeProbeGraph());
}

test('operators that CUDA has no kernel for run on the CPU, with a line in the log', async t => {
  const { written } = standIn(t, ON_CPU);
  const { model: session } = await load({ allowCpuNodes: true });
  const { alpha } = await session.run(drawCheckPicture(PROBE_SIZE_PX, PROBE_SIZE_PX));
  t.is(alpha?.length, PROBE_SIZE_PX ** 2);
  t.true(new Set(alpha).size > 100, 'it has something to compare');
  t.deepEqual(written, ['the graph has operators without a kernel of CUDA: they run on the CPU\n']);
});

test('nodes on the CPU end the load unless they are allowed', async t => {
  const strict = standIn(t, ON_CPU);
  await t.throwsAsync(load({ allowCpuNodes: false }), {
    message: /assigned to the default CPU EP/,
  });
  await load({ allowCpuNodes: true, provider: 'cpu' });
  strict.restore();
  const broken = standIn(t, 'CUDA failure 2: out of memory');
  await t.throwsAsync(load({ allowCpuNodes: true }), { message: /CUDA failure 2: out of memory/ });
  t.deepEqual([...strict.written, ...broken.written], []);
});

const PLAIN = { intraOpThreads: 1, sharesCores: false, allowCpuNodes: true } as const;

onEachRuntime(
  'pixels and channels keep their positions, whatever the order of the tensor',
  async t => {
    const size = { width: 40, height: 24 };
    const rgb = Uint8Array.from({ length: 3 * size.width * size.height }, (_, i) => (i * 7) % 256);
    const model = await createModel(t, { kind: 'red', ...size });
    for (const [colourOrder, which] of [
      ['rgb', 0],
      ['bgr', 2],
    ] as const) {
      const { model: session } = await LoadedModel.load({ ...model, ...PLAIN, colourOrder });
      const { alpha } = await session.run(rgb);
      t.deepEqual(
        Uint8Array.from(alpha),
        rgb.filter((_, i) => i % 3 === which),
        colourOrder,
      );
    }
  },
);

onEachRuntime('a graph that is not what its model says does not load', async t => {
  const model = await createModel(t, {});
  for (const [wrong, message] of [
    [{ path: `${model.path}.gone` }, /doesn't exist|not exist|no such file/i],
    [{ inputName: 'picture' }, /inputs are input, not picture/],
    [{ outputName: 'matte' }, /outputs are output, without matte/],
    [{ data: [{ path: model.path, sha256: '' }] }, /was altered since it was checked/],
    [{ inputWidth: 64 }, /invalid dimensions|are incompatible/i],
    [{ ...(await createModel(t, { kind: 'wrong-shape' })) }, /float32 1x2x32x32, not float32/],
  ] as const) {
    await t.throwsAsync(LoadedModel.load({ ...model, ...PLAIN, ...wrong }), { message });
  }
});

const IDENTITY = { mean: [0, 0, 0], std: [1, 1, 1] } as const;

test('a value that is not a number is reported, wherever it stands', t => {
  for (const at of [0, 1, 2]) {
    const matte = Float32Array.of(0.5, 0.5, 0.5);
    matte[at] = Number.NaN;
    t.false(fillAlpha(matte, new Uint8ClampedArray(3), 'none'));
    t.false(fillAlpha(matte, new Uint8ClampedArray(3), 'sigmoid'));
  }
});

test('alpha is clamped and rounded, never rescaled', t => {
  const matte = Float32Array.of(-7, -0.001, 0, 0.25, 0.5, 254.6 / 255, 1, 1.001, 9);
  const alpha = new Uint8ClampedArray(matte.length);
  t.true(fillAlpha(matte, alpha, 'none'));
  t.deepEqual([...alpha], [0, 0, 0, 64, 128, 255, 255, 255, 255]);
});

test('the sigmoid is applied where the model leaves it to us', t => {
  const alpha = new Uint8ClampedArray(5);
  t.true(fillAlpha(Float32Array.of(-1e9, -2, 0, 2, 1e9), alpha, 'sigmoid'));
  t.deepEqual([...alpha], [0, 30, 128, 225, 255]);
});

test('planes are in the order of the tensor, each normalised by its own channel', t => {
  const normalisation = { mean: [10, 20, 30], std: [1, 2, 4] } as const;
  const rgb = Uint8Array.of(11, 22, 34, 12, 24, 38);
  const planes = new Float32Array(6);
  fillPlanes(rgb, planes, createPlaneTables(normalisation, 'rgb'));
  t.deepEqual([...planes], [1, 2, 1, 2, 1, 2]);
  const swapped = Uint8Array.of(1, 2, 3, 4, 5, 6);
  fillPlanes(swapped, planes, createPlaneTables(IDENTITY, 'bgr'));
  t.deepEqual([...planes], [3, 6, 2, 5, 1, 4]);
});

const NO_DEVICE = `/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:129
 std::conditional_t<THRW, void, onnxruntime::common::Status> onnxruntime::CudaCall(ERRTYPE,
 [with ERRTYPE = cudaError; bool THRW = true] CUDA failure 100: no CUDA-capable device is detected ;
 GPU=32767 ; hostname=gpu-7 ; file=/onnxruntime_src/cuda_execution_provider.cc ; line=352 ;
 expr=cudaSetDevice(info_.device_id);`;

test('the runtime’s error is shortened to the line that matters', t => {
  t.is(shortenNativeError(NO_DEVICE), 'CUDA failure 100: no CUDA-capable device is detected');
  const assertion =
    '/onnxruntime_src/core/session.cc:12 void f() status.IsOK() was false. No such graph';
  t.is(shortenNativeError(assertion), 'No such graph');
});

test('an error of the runtime keeps its cause, without positions in its source', t => {
  const where = '/onnxruntime_src/onnxruntime/core';
  for (const [written, cause] of [
    [
      "while running Reshape node. Name:'window' Status Message: " +
        `${where}/providers/cpu/tensor/reshape_helper.h:91 onnxruntime::ReshapeHelper::ReshapeHelper` +
        '(const onnxruntime::TensorShape&, bool) gsl::narrow_cast<int64_t>(a.Size()) == b was false. ' +
        'The input tensor cannot be reshaped. Input shape:{1,3,500,500}\n',
      "while running Reshape node. Name:'window' Status Message: " +
        'The input tensor cannot be reshaped. Input shape:{1,3,500,500}',
    ],
    [
      `Load model from m.onnx failed:${where}/graph/model.cc:202 onnxruntime::Model::Model` +
        '(onnx::ModelProto&&, const onnxruntime::PathString&) Unsupported model IR version: 99',
      'Load model from m.onnx failed: Unsupported model IR version: 99',
    ],
    [
      'ov_core_read_model failed with -1: Exception from src/inference/src/cpp/core.cpp:84:\n' +
        "Check 'shape.compatible(ov::PartialShape(a))' failed at src/plugins/x/infer.cpp:385:\n" +
        "Can't set the input\n\n\n",
      "ov_core_read_model failed with -1: Can't set the input",
    ],
    [
      '[ONNXRuntimeError] : 1 : FAIL : tensorprotoutils.cc:1763 GetExtDataFromTensorProto w: too long',
      'w: too long',
    ],
    ["node with name 'a\u001b[2J'", "node with name 'a\\u{1b}[2J'"],
  ] as const) {
    t.is(shortenNativeError(written), cause);
  }
});

test('a lost device differs from a failed run', t => {
  t.true(saysDeviceIsGone(shortenNativeError(NO_DEVICE)));
  t.true(saysDeviceIsGone('CUDA failure 46: all CUDA-capable devices are busy'));
  t.true(saysDeviceIsGone('CUDA failure 999: unknown error'));
  t.false(saysDeviceIsGone('CUDA failure 700: an illegal memory access'));
  t.false(saysDeviceIsGone('CUDA failure 2: out of memory'));
  t.false(saysDeviceIsGone('CUDNN failure 100: something'));
});

const FRONTEND =
  'CUDNN_FE failure 8: HEURISTIC_QUERY_FAILED ; GPU=0 ; hostname=vm ; file=/a/conv.cc ; line=238 ; ' +
  'expr=s_.cudnn_fe_graph->create_execution_plans({heur_mode}); Warning:';

test('a shortage of memory differs from other failures', t => {
  for (const message of [
    'Failed to allocate memory for requested buffer of size 26214400',
    'CUDA failure 2: out of memory',
    'CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED',
    'CUBLAS failure 1: CUBLAS_STATUS_NOT_INITIALIZED',
    'CUDNN failure 1001: CUDNN_STATUS_NOT_INITIALIZED',
    'CUDNN failure 4003: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED',
    shortenNativeError(
      `${FRONTEND} CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED; Reason: x`,
    ),
    'CUFFT failure 2: CUFFT_ALLOC_FAILED',
  ]) {
    t.is(saysMemoryIsShort(message), true, message);
  }
  for (const message of [
    'CUDA failure 209: no kernel image is available for execution on the device',
    'CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED',
    shortenNativeError(`${FRONTEND} CUDNN_STATUS_NOT_SUPPORTED; Reason: x`),
    'CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED',
    'the model did not load within 300000 ms',
  ]) {
    t.is(saysMemoryIsShort(message), false, message);
  }
});

onEachRuntime('an engine that runs models leaves no file and opens no socket', async t => {
  const home = await openWatchedHome(t);
  const pool = await openPool(t, {}, { childEnv: home.env });
  await run(pool, QUICK);
  t.deepEqual(await networkSocketsOf(pidOf(pool)), []);
  await pool.close(0);
  t.deepEqual(home.requests, []);
  t.deepEqual(await home.files(), []);
});
