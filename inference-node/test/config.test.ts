import assert from 'node:assert/strict';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import { ConfigError } from '@matting/program/config-error.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import test from 'ava';
import { loadConfig } from '../config.ts';

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

test('names every bad variable at once', t => {
  const bad = {
    MATTING_NODE_PORT: '99999999',
    MATTING_NODE_HTTP_PORT: 'a-port-of-http',
    MATTING_NODE_ID: 'no blanks please',
    MATTING_NODE_TOKEN: 'short one',
    MATTING_TLS_SERVER_NAME: 'no host name',
    MATTING_NODE_ADVERTISE_ADDRESS: 'http://somewhere:1',
    MATTING_REGISTRY_ADDRESS: 'one-without-port',
    MATTING_EXECUTION_PROVIDER: 'abacus-provider',
    MATTING_ENGINES: '0',
    MATTING_ENGINE_THREADS: '-1',
    MATTING_PICTURE_WORKERS: '1000',
    MATTING_LOG_LEVEL: 'chatty-level',
    MATTING_MODEL: '../../escape',
    MATTING_PRECISION: 'int4',
  };
  t.deepEqual(problems(bad).sort(), Object.keys(bad).sort());
});

test('refuses execution providers that are gone, and says what to use', t => {
  for (const [gone, instead] of [
    ['tensorrt', /MATTING_EXECUTION_PROVIDER must be cuda: .* tensorrt$/],
    ['webgpu', /MATTING_EXECUTION_PROVIDER must be cpu, or cuda .* webgpu$/],
  ] as const) {
    const env = { MATTING_EXECUTION_PROVIDER: gone };
    t.throws(() => loadConfig(env), { instanceOf: ConfigError, message: instead });
  }
  for (const kept of ['auto', 'cuda', 'cpu']) {
    t.is(loadConfig({ MATTING_EXECUTION_PROVIDER: kept }).executionProvider, kept as never);
  }
});

test('knows direct callers by name, each by a token of its own', async t => {
  const file = path.join(await temporaryFolder(t), 'callers');
  const env = { MATTING_NODE_CALLER_TOKENS_FILE: file, MATTING_HOST: '10.0.0.1' };
  await writeFile(file, 'shop:0123456789abcdef,lab:colons:are:fine:here');
  t.deepEqual(problems(env), []);
  t.deepEqual(loadConfig(env).callerTokens.items, [
    { name: 'shop', token: '0123456789abcdef' },
    { name: 'lab', token: 'colons:are:fine:here' },
  ]);
  const wrong = [
    '0123456789abcdef0123',
    'shop:too-short',
    'shop:0123456789abcdef,shop:fedcba9876543210',
    'shop:0123456789abcdef,lab:0123456789abcdef',
    `shop:${TOKEN}`,
  ];
  for (const list of wrong) {
    await writeFile(file, list);
    const variables = problems({ ...env, MATTING_NODE_TOKEN: TOKEN });
    t.deepEqual(variables, ['MATTING_NODE_CALLER_TOKENS_FILE'], list);
  }
});

test('needs no token where it checks certificates', t => {
  const files = { MATTING_TLS_CERT_FILE: '/c', MATTING_TLS_KEY_FILE: '/k' };
  const checked = { ...files, MATTING_TLS_CLIENT_CA_FILE: '/a', MATTING_HOST: '10.0.0.1' };
  t.deepEqual(problems(checked), []);
  t.deepEqual(problems({ ...files, MATTING_HOST: '10.0.0.1' }), ['MATTING_NODE_TOKEN']);
});

test('serves loopback alone without a token', t => {
  for (const host of ['127.0.0.1', '127.1.2.3', '::1', 'localhost']) {
    t.deepEqual(problems({ MATTING_HOST: host }), []);
  }
  for (const host of ['0.0.0.0', '::', '10.0.0.1', 'node-7.internal', '128.0.0.1']) {
    t.deepEqual(problems({ MATTING_HOST: host }), ['MATTING_NODE_TOKEN']);
    t.deepEqual(problems({ MATTING_HOST: host, MATTING_NODE_TOKEN: TOKEN }), []);
  }
});

test('wants the token for a registry, and an address where it listens everywhere', t => {
  const registry = { MATTING_REGISTRY_ADDRESS: '127.0.0.1:50050' };
  t.deepEqual(problems(registry), ['MATTING_NODE_TOKEN']);
  const everywhere = { ...registry, MATTING_NODE_TOKEN: TOKEN, MATTING_HOST: '0.0.0.0' };
  t.deepEqual(problems(everywhere), ['MATTING_NODE_ADVERTISE_ADDRESS']);
  const advertised = { ...everywhere, MATTING_NODE_ADVERTISE_ADDRESS: '[2001:db8::1]:50051' };
  t.deepEqual(problems(advertised), []);
});

test('takes tokens from files, one a line, in place of the variable', async t => {
  const home = await temporaryFolder(t);
  const write = async (name: string, text: string) => {
    await writeFile(path.join(home, name), text);
    return path.join(home, name);
  };
  const registry = { MATTING_REGISTRY_ADDRESS: '127.0.0.1:50050' };
  const own = await write('own', `${TOKEN}\n# the next\n the-next-token-of-the-fleet \n`);
  const callers = await write('callers', '# nobody yet\n');
  const files = { MATTING_NODE_TOKEN_FILE: own, MATTING_NODE_CALLER_TOKENS_FILE: callers };
  const { nodeTokens, callerTokens } = loadConfig({ ...registry, ...files });
  t.deepEqual(nodeTokens, { items: [TOKEN, 'the-next-token-of-the-fleet'], file: own });
  t.deepEqual(callerTokens, { items: [], file: callers });
  await writeFile(
    callers,
    'shop:0123456789abcdef,lab:fedcba9876543210\ndesk:the-token-of-a-desk\n' +
      '# gone: mill:the-token-of-a-mill,yard:the-token-of-a-yard\n',
  );
  const named = loadConfig({ ...registry, ...files }).callerTokens.items;
  t.deepEqual(
    named.map(({ name }) => name),
    ['shop', 'lab', 'desk'],
  );
  t.deepEqual(problems({ ...files, MATTING_NODE_TOKEN: TOKEN }), ['MATTING_NODE_TOKEN']);
  const wrong = ['', ' \n', '# alone\n', 'short\n', Array(5).fill(TOKEN).join('\n')];
  for (const [index, text] of wrong.entries()) {
    const file = await write(`wrong-${index}`, text);
    t.deepEqual(problems({ MATTING_NODE_TOKEN_FILE: file }), ['MATTING_NODE_TOKEN_FILE'], text);
  }
  t.deepEqual(problems({ MATTING_NODE_TOKEN_FILE: home }), ['MATTING_NODE_TOKEN_FILE']);
  const shared = await write('shared', 'shop:the-next-token-of-the-fleet\n');
  t.deepEqual(problems({ ...files, MATTING_NODE_CALLER_TOKENS_FILE: shared }), [
    'MATTING_NODE_CALLER_TOKENS_FILE',
  ]);
});

test('takes GPUs by number or identifier, and engines by number', t => {
  for (const list of ['GPU', '0,,1', 'all,0', 'GPU-../x', '1000']) {
    t.deepEqual(problems({ MATTING_GPU_DEVICES: list }), ['MATTING_GPU_DEVICES'], list);
  }
  const read = (env: Record<string, string>) => loadConfig(env);
  t.is(read({}).gpuDevice, undefined);
  t.is(read({ MATTING_GPU_DEVICES: 'GPU-aaaa-1' }).gpuDevice, 'GPU-aaaa-1');
  for (const engines of ['0', '65', 'many', '-1', 'auto']) {
    t.deepEqual(problems({ MATTING_ENGINES: engines }), ['MATTING_ENGINES'], engines);
  }
  t.is(read({ MATTING_ENGINES: '64' }).engines, 64);
});

test('wants two ports', t => {
  const same = { MATTING_NODE_PORT: '6000', MATTING_NODE_HTTP_PORT: '6000' };
  t.deepEqual(problems(same), ['MATTING_NODE_HTTP_PORT']);
  t.deepEqual(problems({ MATTING_NODE_PORT: '0', MATTING_NODE_HTTP_PORT: '0' }), []);
});

test('has defaults for all', t => {
  const config = loadConfig({});
  t.is(config.host, '127.0.0.1');
  t.regex(config.nodeId, /^[A-Za-z0-9._-]{1,64}$/);
  t.is(config.nodeId, loadConfig({}).nodeId);
  t.not(config.nodeId, loadConfig({ MATTING_NODE_PORT: '6001' }).nodeId);
});

test('hands no secret to the children', t => {
  const { childEnv } = loadConfig({
    PATH: '/bin',
    LD_LIBRARY_PATH: '/cuda',
    CUDA_VISIBLE_DEVICES: '0',
    NODE_COMPILE_CACHE: '/cache',
    MATTING_NODE_TOKEN: TOKEN,
    AWS_SECRET_ACCESS_KEY: 'x',
    NODE_OPTIONS: '--inspect',
  });
  t.deepEqual(childEnv, {
    PATH: '/bin',
    LD_LIBRARY_PATH: '/cuda',
    CUDA_VISIBLE_DEVICES: '0',
    // Otherwise every child would be compiled again.
    NODE_COMPILE_CACHE: '/cache',
  });
});
