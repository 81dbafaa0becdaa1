import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  saysDeviceIsGone,
  saysMemoryIsShort,
  shortenNativeError,
} from '../../src/engine/native-error.ts';

const NO_DEVICE = `/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:129
 std::conditional_t<THRW, void, onnxruntime::common::Status> onnxruntime::CudaCall(ERRTYPE,
 [with ERRTYPE = cudaError; bool THRW = true] CUDA failure 100: no CUDA-capable device is detected ;
 GPU=32767 ; hostname=gpu-7 ; file=/onnxruntime_src/cuda_execution_provider.cc ; line=352 ;
 expr=cudaSetDevice(info_.device_id);`;

test('of a page of C++ the line that matters is left', () => {
  assert.equal(
    shortenNativeError(NO_DEVICE),
    'CUDA failure 100: no CUDA-capable device is detected',
  );
  const cudnn =
    "Non-zero status code returned while running Conv node. Name:'c1' Status Message: CUDNN failure 4: " +
    'CUDNN_STATUS_NOT_INITIALIZED ; GPU=0 ; hostname=x ; file=cudnn_common.cc ; line=1 ; expr=cudnnCreate';
  assert.equal(shortenNativeError(cudnn), 'CUDNN failure 4: CUDNN_STATUS_NOT_INITIALIZED');
  const arena =
    "Non-zero status code returned while running Conv node. Name:'c1' Status Message: " +
    '/onnxruntime_src/onnxruntime/core/framework/bfc_arena.cc:376 void* onnxruntime::BFCArena::' +
    'AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed to allocate memory for ' +
    'requested buffer of size 26214400\n';
  assert.equal(
    shortenNativeError(arena),
    'Failed to allocate memory for requested buffer of size 26214400',
  );
  const assertion =
    '/onnxruntime_src/core/session.cc:12 void f() status.IsOK() was false. No such graph';
  assert.equal(shortenNativeError(assertion), 'No such graph');
});

test('any other message stays, in one line', () => {
  for (const message of ['the model answered\nwith values', '', 'CUDA is not here: failure']) {
    assert.equal(shortenNativeError(message), message.replace('\n', ' '));
  }
});

test('a device that is gone is told from a run that failed', () => {
  assert.equal(saysDeviceIsGone(shortenNativeError(NO_DEVICE)), true);
  assert.equal(saysDeviceIsGone('CUDA failure 46: all CUDA-capable devices are busy'), true);
  assert.equal(saysDeviceIsGone('CUDA failure 999: unknown error'), true);
  assert.equal(saysDeviceIsGone('CUDA failure 700: an illegal memory access'), false);
  assert.equal(saysDeviceIsGone('CUDA failure 2: out of memory'), false);
  assert.equal(saysDeviceIsGone('CUDNN failure 100: something'), false);
});

test('memory that is short is told from what fails for another reason', () => {
  for (const message of [
    'Failed to allocate memory for requested buffer of size 26214400',
    'CUDA failure 2: out of memory',
    'CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED',
    'CUBLAS failure 1: CUBLAS_STATUS_NOT_INITIALIZED',
    'CUDNN failure 1001: CUDNN_STATUS_NOT_INITIALIZED',
  ]) {
    assert.equal(saysMemoryIsShort(message), true, message);
  }
  for (const message of [
    'CUDA failure 209: no kernel image is available for execution on the device',
    'CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED',
    'CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED',
    'the model did not load within 300000 ms',
  ]) {
    assert.equal(saysMemoryIsShort(message), false, message);
  }
});
