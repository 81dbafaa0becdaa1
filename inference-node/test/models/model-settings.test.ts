import assert from 'node:assert/strict';
import test from 'node:test';
import { ConfigError } from '#program/env.ts';
import { parseModelSettings } from '../../src/models/model-settings.ts';

/** The problems that are reported, one text for each variable. */
function problemsOf(env: Record<string, string>): readonly string[] {
  try {
    parseModelSettings(env, '/srv');
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    return error.problems.map(({ variable, expected }) => `${variable} must be ${expected}`);
  }
  return [];
}

test('every bad variable is named with what it should be', () => {
  const [model = '', size = '', precision = '', ...others] = problemsOf({
    MATTING_MODEL: '../etc',
    MATTING_MODEL_INPUT_SIZE: '1024x768',
    MATTING_PRECISION: 'fp8',
  });
  assert.match(model, /^MATTING_MODEL must be the name of a model/);
  assert.match(size, /^MATTING_MODEL_INPUT_SIZE must be a whole number, 1 to 8192/);
  assert.match(precision, /^MATTING_PRECISION must be one of auto, fp32, fp16, int8/);
  assert.deepEqual(others, []);
});

test('a gate on commercial use has no other names', () => {
  for (const gate of ['yes', 'Weights', 'true', '1']) {
    assert.deepEqual(problemsOf({ MATTING_COMMERCIAL_USE: gate }), [
      'MATTING_COMMERCIAL_USE must be one of weights, strict',
    ]);
  }
});

test('size and precision need a named model', () => {
  assert.deepEqual(problemsOf({ MATTING_MODEL_INPUT_SIZE: '768' }), [
    'MATTING_MODEL_INPUT_SIZE must be set together with MATTING_MODEL only',
  ]);
  assert.equal(problemsOf({ MATTING_PRECISION: 'fp32' }).length, 1);
  assert.deepEqual(problemsOf({ MATTING_PRECISION: 'auto' }), []);
});

test('a plan and a single model exclude each other', () => {
  assert.deepEqual(problemsOf({ MATTING_MODEL: 'isnet', MATTING_QUALITY: 'best' }), [
    'MATTING_QUALITY must be unset where MATTING_MODEL names a single model',
  ]);
  assert.equal(problemsOf({ MATTING_QUALITY: 'finest' }).length, 1);
  assert.equal(parseModelSettings({ MATTING_QUALITY: 'fast' }, '/srv').quality, 'fast');
});

test('unset and empty variables have the defaults', () => {
  const defaults = {
    model: undefined,
    quality: 'standard',
    modelDir: '/srv/model-cache',
    weightsDir: undefined,
    inputSize: undefined,
    precision: 'auto',
    commercialUse: undefined,
  };
  assert.deepEqual(parseModelSettings({}, '/srv'), defaults);
  const empty = {
    MATTING_COMMERCIAL_USE: '',
    MATTING_MODEL: '',
    MATTING_MODEL_DIR: '',
    MATTING_MODEL_INPUT_SIZE: '',
    MATTING_WEIGHTS_DIR: '',
  };
  assert.deepEqual(parseModelSettings(empty, '/srv'), defaults);
});

test('variables that are set are used', () => {
  const env = {
    MATTING_MODEL: 'u2netp',
    MATTING_MODEL_DIR: '../cache',
    MATTING_MODEL_INPUT_SIZE: '768',
    MATTING_PRECISION: 'int8',
    MATTING_COMMERCIAL_USE: 'strict',
    MATTING_WEIGHTS_DIR: 'weights',
  };
  assert.deepEqual(parseModelSettings(env, '/srv'), {
    model: 'u2netp',
    quality: 'standard',
    modelDir: '/cache',
    weightsDir: '/srv/weights',
    inputSize: 768,
    precision: 'int8',
    commercialUse: 'strict',
  });
});
