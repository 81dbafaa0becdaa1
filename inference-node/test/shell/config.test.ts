import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ConfigError } from '#program/env.ts';
import { loadConfig } from '../../src/config.ts';

const TOKEN = 'a-token-of-sixteen-or-more';

function problems(env: Record<string, string>): string[] {
  try {
    loadConfig(env);
  } catch (error) {
    assert.ok(error instanceof ConfigError);
    for (const value of Object.values(env)) {
      if (value.length > 6) assert.ok(!error.message.includes(value), `${value} is shown`);
    }
    return error.problems.map(({ variable }) => variable);
  }
  return [];
}

describe('the configuration', () => {
  it('names every bad variable at once', () => {
    const bad = {
      MATTING_NODE_PORT: '99999999',
      MATTING_NODE_HTTP_PORT: 'a-port-of-http',
      MATTING_NODE_ID: 'no blanks please',
      MATTING_NODE_TOKEN: 'short one',
      MATTING_NODE_CALLER_TOKENS: 'shop:too-short',
      MATTING_NODE_CALLER_IMAGES_MAX: '-3',
      MATTING_DIRECT_STORAGE_ENDPOINTS: 'https://storage.example/bucket',
      MATTING_TLS_SERVER_NAME: 'no host name',
      MATTING_NODE_ADVERTISE_ADDRESS: 'http://somewhere:1',
      MATTING_REGISTRY_ADDRESS: 'one-without-port',
      MATTING_EXECUTION_PROVIDER: 'abacus-provider',
      MATTING_ENGINES: '0',
      MATTING_ENGINE_THREADS: '-1',
      MATTING_PICTURE_WORKERS: '1000',
      MATTING_NODE_MEGAPIXELS_MAX: 'much-of-it',
      MATTING_LOG_LEVEL: 'chatty-level',
      MATTING_MODEL: '../../escape',
      MATTING_PRECISION: 'int4',
    };
    assert.deepEqual(problems(bad).sort(), Object.keys(bad).sort());
  });

  it('takes files from the storage for the fleet alone, whose token it then needs', () => {
    const list = 'https://Storage.example:443,http://10.0.0.7:9000';
    const env = { MATTING_DIRECT_STORAGE_ENDPOINTS: list };
    assert.deepEqual(problems(env), ['MATTING_NODE_TOKEN']);
    const { directOrigins } = loadConfig({ ...env, MATTING_NODE_TOKEN: TOKEN });
    assert.deepEqual(directOrigins, ['https://storage.example', 'http://10.0.0.7:9000']);
    assert.deepEqual(loadConfig({}).directOrigins, []);
  });

  it('knows direct callers by name, each by a token of its own', () => {
    const tokens = 'shop:0123456789abcdef,lab:colons:are:fine:here';
    const env = { MATTING_NODE_CALLER_TOKENS: tokens, MATTING_HOST: '10.0.0.1' };
    assert.deepEqual(problems(env), []);
    assert.deepEqual(loadConfig(env).callerTokens, [
      { name: 'shop', token: '0123456789abcdef' },
      { name: 'lab', token: 'colons:are:fine:here' },
    ]);
    const wrong = [
      '0123456789abcdef0123',
      'shop:0123456789abcdef,shop:fedcba9876543210',
      'shop:0123456789abcdef,lab:0123456789abcdef',
      `shop:${TOKEN}`,
    ];
    for (const list of wrong) {
      const variables = problems({ MATTING_NODE_CALLER_TOKENS: list, MATTING_NODE_TOKEN: TOKEN });
      assert.deepEqual(variables, ['MATTING_NODE_CALLER_TOKENS'], list);
    }
  });

  it('needs no token where it checks certificates', () => {
    const files = { MATTING_TLS_CERT_FILE: '/c', MATTING_TLS_KEY_FILE: '/k' };
    const checked = { ...files, MATTING_TLS_CLIENT_CA_FILE: '/a', MATTING_HOST: '10.0.0.1' };
    assert.deepEqual(problems(checked), []);
    assert.deepEqual(problems({ ...files, MATTING_HOST: '10.0.0.1' }), ['MATTING_NODE_TOKEN']);
  });

  it('serves loopback alone without a token', () => {
    for (const host of ['127.0.0.1', '127.1.2.3', '::1', 'localhost']) {
      assert.deepEqual(problems({ MATTING_HOST: host }), []);
    }
    for (const host of ['0.0.0.0', '::', '10.0.0.1', 'node-7.internal', '128.0.0.1']) {
      assert.deepEqual(problems({ MATTING_HOST: host }), ['MATTING_NODE_TOKEN']);
      assert.deepEqual(problems({ MATTING_HOST: host, MATTING_NODE_TOKEN: TOKEN }), []);
    }
  });

  it('wants the token for a registry, and an address where it listens everywhere', () => {
    const registry = { MATTING_REGISTRY_ADDRESS: '127.0.0.1:50050' };
    assert.deepEqual(problems(registry), ['MATTING_NODE_TOKEN']);
    const everywhere = { ...registry, MATTING_NODE_TOKEN: TOKEN, MATTING_HOST: '0.0.0.0' };
    assert.deepEqual(problems(everywhere), ['MATTING_NODE_ADVERTISE_ADDRESS']);
    const told = { ...everywhere, MATTING_NODE_ADVERTISE_ADDRESS: '[2001:db8::1]:50051' };
    assert.deepEqual(problems(told), []);
  });

  it('takes a second token of the fleet beside the first, which no direct caller has', () => {
    const accepted = { MATTING_NODE_TOKEN_ACCEPTED: 'another-token-of-the-fleet' };
    assert.deepEqual(problems(accepted), ['MATTING_NODE_TOKEN_ACCEPTED']);
    const both = { ...accepted, MATTING_NODE_TOKEN: TOKEN };
    assert.equal(loadConfig(both).tokenAccepted, 'another-token-of-the-fleet');
    const shared = { ...both, MATTING_NODE_CALLER_TOKENS: 'shop:another-token-of-the-fleet' };
    assert.deepEqual(problems(shared), ['MATTING_NODE_CALLER_TOKENS']);
    assert.deepEqual(problems({ ...both, MATTING_NODE_TOKEN_ACCEPTED: 'short' }), [
      'MATTING_NODE_TOKEN_ACCEPTED',
    ]);
  });

  it('takes GPUs by number or identifier, and engines by number', () => {
    for (const list of ['GPU', '0,,1', 'all,0', 'GPU-../x', '1000']) {
      assert.deepEqual(problems({ MATTING_GPU_DEVICES: list }), ['MATTING_GPU_DEVICES'], list);
    }
    const read = (env: Record<string, string>) => loadConfig(env);
    assert.equal(read({}).gpuDevices, 'all');
    assert.equal(read({ MATTING_GPU_DEVICES: 'all' }).gpuDevices, 'all');
    const named = read({ MATTING_GPU_DEVICES: '0, GPU-aaaa-1' });
    assert.deepEqual(named.gpuDevices, ['0', 'GPU-aaaa-1']);
    for (const engines of ['0', '65', 'many', '-1', 'auto']) {
      assert.deepEqual(problems({ MATTING_ENGINES: engines }), ['MATTING_ENGINES'], engines);
    }
    assert.equal(read({ MATTING_ENGINES: '64' }).engines, 64);
  });

  it('takes as many images at once as there are graphs for', () => {
    for (const images of ['0', '3', '16', 'many', '08', '-1', 'auto']) {
      assert.deepEqual(problems({ MATTING_BATCH_MAX: images }), ['MATTING_BATCH_MAX'], images);
    }
    assert.equal(loadConfig({}).batchMax, 1);
    assert.equal(loadConfig({ MATTING_BATCH_MAX: '1' }).batchMax, 1);
    assert.equal(loadConfig({ MATTING_BATCH_MAX: '8' }).batchMax, 8);
  });

  it('wants two ports', () => {
    const same = { MATTING_NODE_PORT: '6000', MATTING_NODE_HTTP_PORT: '6000' };
    assert.deepEqual(problems(same), ['MATTING_NODE_HTTP_PORT']);
    assert.deepEqual(problems({ MATTING_NODE_PORT: '0', MATTING_NODE_HTTP_PORT: '0' }), []);
  });

  it('has defaults for all', () => {
    const config = loadConfig({});
    assert.equal(config.host, '127.0.0.1');
    assert.equal(config.port, 50_051);
    assert.equal(config.httpPort, 50_052);
    assert.equal(config.executionProvider, 'auto');
    assert.deepEqual(config.registryAddresses, []);
    assert.match(config.nodeId, /^[A-Za-z0-9._-]{1,64}$/);
    assert.equal(config.nodeId, loadConfig({}).nodeId);
    assert.notEqual(config.nodeId, loadConfig({ MATTING_NODE_PORT: '6001' }).nodeId);
  });

  it('tries control planes in the order given', () => {
    const config = loadConfig({
      MATTING_REGISTRY_ADDRESS: 'a:1, b.example:2 ,[::1]:3',
      MATTING_NODE_TOKEN: TOKEN,
    });
    assert.deepEqual(config.registryAddresses, ['a:1', 'b.example:2', '[::1]:3']);
  });

  it('hands no secret to the children', () => {
    const { childEnv } = loadConfig({
      PATH: '/bin',
      LD_LIBRARY_PATH: '/cuda',
      CUDA_VISIBLE_DEVICES: '0',
      NODE_COMPILE_CACHE: '/cache',
      MATTING_NODE_TOKEN: TOKEN,
      AWS_SECRET_ACCESS_KEY: 'x',
      NODE_OPTIONS: '--inspect',
    });
    assert.deepEqual(childEnv, {
      PATH: '/bin',
      LD_LIBRARY_PATH: '/cuda',
      CUDA_VISIBLE_DEVICES: '0',
      // Without it every child would be compiled anew.
      NODE_COMPILE_CACHE: '/cache',
    });
  });
});
