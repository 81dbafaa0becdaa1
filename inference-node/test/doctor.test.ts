/** `matting doctor --node`: what it says of a machine without models, and of wrong variables. */
import { createServer } from 'node:net';
import type { Finding } from '@matting/program/doctor/findings.ts';
import {
  codecFindings,
  doctor,
  libheifFinding,
  memoryFinding,
  providerFindings,
} from '@matting/serving/doctor/doctor.ts';
import { gpuFacts, openGpuHost } from '@matting/serving/test/gpu-host.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { writeTinyModel } from '@matting/test-support/tiny-model.ts';
import ava from 'ava';
import { loadConfig } from '../config.ts';

const test = ava.serial;

const directory = await temporaryFolder({ teardown: test.after.always });

async function examine(env: Readonly<Record<string, string>>) {
  const pieces: string[] = [];
  const out = { write: (text: string) => pieces.push(text) > 0 };
  const good = await doctor({ json: true }, env, () => loadConfig(env), out as never);
  const { findings } = JSON.parse(pieces.join('')) as { findings: Finding[] };
  const of = (subject: string) =>
    findings
      .filter(finding => finding.subject === subject)
      .map(({ status, found }) => `${status}: ${found}`);
  return { good, of };
}

test('names every wrong variable, and looks no further', async t => {
  const wrong = { MATTING_NODE_PORT: 'x', MATTING_ENGINES: '0', MATTING_MODLE: 'u2netp' };
  const { good, of } = await examine(wrong);
  t.false(good);
  const found = of('configuration').join('\n');
  t.regex(found, /^failure: MATTING_NODE_PORT must be/m);
  t.regex(found, /^failure: MATTING_ENGINES must be/m);
  t.regex(found, /^warning: variables that nothing reads: MATTING_MODLE \(MATTING_MODEL\?\)$/m);
  t.deepEqual(of('models'), []);
});

test('names an execution provider that is gone before a node of this version starts', async t => {
  const { good, of } = await examine({ MATTING_EXECUTION_PROVIDER: 'webgpu' });
  t.false(good);
  t.regex(of('configuration').join(), /^failure: MATTING_EXECUTION_PROVIDER must be cpu, or cuda /);
});

test('misses the weights, and tells registries that answer from those that do not', async t => {
  const registry = createServer().listen(0, '127.0.0.1');
  await new Promise(resolve => registry.once('listening', resolve));
  const { port } = registry.address() as { port: number };
  try {
    const { good, of } = await examine({
      MATTING_MODEL: 'u2netp',
      MATTING_MODEL_DIR: directory,
      MATTING_EXECUTION_PROVIDER: 'cpu',
      MATTING_NODE_HTTP_PORT: '0',
      MATTING_NODE_TOKEN: 'a-token-of-nobody-1234567890-xyzuvw',
      MATTING_NODE_TOKEN_ACCEPTED: 'change-me-change-me',
      MATTING_REGISTRY_ADDRESS: `127.0.0.1:${port},127.0.0.1:1`,
    });
    t.false(good);
    t.regex(of('models').join('\n'), /^failure: u2netp: u2netp\.onnx is missing$/m);
    t.regex(of('models').join('\n'), /^warning: 1 of 1 are not prepared yet$/m);
    const [weak, second, ...others] = of('secrets');
    t.regex(weak ?? '', /^warning: the second node token .*placeholder/);
    t.regex(second ?? '', /^warning: this node accepts a second node token/);
    t.deepEqual(others, []);
    t.regex(of('provider').join(), /^ok: cpu runs here/);
    t.deepEqual(of('registry'), [
      `ok: 127.0.0.1:${port} takes connections`,
      'warning: 127.0.0.1:1: connect ECONNREFUSED 127.0.0.1:1',
    ]);
  } finally {
    registry.close();
  }
});

test('refuses a plan whose terms are not met', async t => {
  const { good, of } = await examine({
    MATTING_COMMERCIAL_USE: 'strict',
    MATTING_EXECUTION_PROVIDER: 'cpu',
    MATTING_NODE_HTTP_PORT: '0',
  });
  t.false(good);
  t.regex(of('plan').join(), /^failure: .*strict refuses/);
});

test('fails where the library that reads AVIF has known holes', async t => {
  const [here, ...more] = await codecFindings();
  t.deepEqual([here?.status, more], ['ok', []], here?.found);
  const statusOf = (version: string | undefined) => libheifFinding(version).status;
  for (const version of ['1.23.2', '1.9.9', '0.99.0', '1.22.10']) {
    t.is(statusOf(version), 'failure', version);
  }
  for (const version of ['1.23.3', '1.23.10', '1.100.0', '2.0.0']) {
    t.is(statusOf(version), 'ok', version);
  }
  t.is(statusOf(undefined), 'warning');
});

test('looks at the GPU that a node would take', async t => {
  const host = await openGpuHost(t, [gpuFacts('one'), gpuFacts('two', { index: 1 })]);
  const { folder: providerDir, childEnv } = host;
  await host.fault('load GPU-two CUDA failure 100: no CUDA-capable device is detected');
  const config = { executionProvider: 'auto', providerDir, childEnv } as const;
  const { provider, findings } = await providerFindings({ ...config, gpuDevice: undefined });
  t.is(provider, 'cuda');
  t.deepEqual(
    findings.map(({ status, found }) => `${status}: ${found}`),
    ['ok: cuda runs here on GPU-one (requested: auto)'],
  );
  // Named, it keeps the node from starting.
  const named = await providerFindings({ ...config, gpuDevice: 'GPU-two' });
  t.deepEqual(
    named.findings.map(({ status }) => status),
    ['failure'],
  );
});

test('counts as many engines as a start opens: a host bounds them, a GPU that is listed does not', async t => {
  const model = await writeTinyModel(await temporaryFolder(t), {});
  const plan = { models: [{ model, role: 'subject' as const }] };
  const config = { ...loadConfig({}), engines: 5000 };
  const { folder: providerDir, childEnv } = await openGpuHost(t, [gpuFacts('one')]);
  const onGpu = { executionProvider: 'cuda', gpuDevice: undefined, providerDir, childEnv } as const;
  const { device } = await providerFindings(onGpu);
  t.is(device?.facts.id, 'GPU-one');
  for (const provider of ['cpu', 'cuda'] as const) {
    const unlisted = await memoryFinding(config, plan, { provider, device: undefined });
    t.is(unlisted.status, 'ok', provider);
  }
  const listed = await memoryFinding(config, plan, { provider: 'cuda', device });
  t.is(listed.status, 'failure');
  t.regex(listed.found, /are too little for 5000 engines/);
  const chosen = { ...config, engines: undefined };
  const one = await memoryFinding(chosen, plan, { provider: 'cuda', device });
  t.regex(one.found, /for ([12]) engines \(\1 of each model for a GPU beside \d+ cores\) and/);
});
