import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer as createHttp } from 'node:http';
import { createServer } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';
import type { Finding } from '@matting/program/doctor/findings.ts';
import {
  chooseProviderHere,
  describeMemory,
  doctor,
  requireSafeLibheif,
} from '@matting/serving/doctor.ts';
import { collectLog, gpuFacts, openGpuHost } from '@matting/serving/test/gpu-host.ts';
import { STARTED_ENV } from '@matting/test-support/started-env.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { writeTinyModel } from '@matting/test-support/tiny-model.ts';
import ava from 'ava';
import { loadConfig } from '../config.ts';

const test = ava.serial;
const { log: SILENT } = collectLog();

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

test('names every wrong variable, and checks nothing else', async t => {
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
  const registry = createServer();
  t.teardown(() => registry.close());
  await once(registry.listen(0, '127.0.0.1'), 'listening');
  const { port } = registry.address() as { port: number };
  const { good, of } = await examine({
    MATTING_MODEL: 'u2netp',
    MATTING_MODEL_DIR: directory,
    MATTING_EXECUTION_PROVIDER: 'cpu',
    MATTING_NODE_HTTP_PORT: '0',
    MATTING_NODE_TOKEN: 'a-token-of-nobody-1234567890-xyzuvw',
    MATTING_REGISTRY_ADDRESS: `127.0.0.1:${port},127.0.0.1:1`,
  });
  t.false(good);
  t.regex(of('models').join(), /^failure: .*u2netp\.onnx/);
  t.regex(of('provider').join(), /^ok: cpu runs here/);
  t.deepEqual(of('registry'), [
    'warning: 127.0.0.1:1: connect ECONNREFUSED 127.0.0.1:1',
    `ok: 127.0.0.1:${port} take connections`,
  ]);
});

test('sees at which control planes a node that runs registers, by settings of its own', async t => {
  const registryAddress = '127.0.0.1:1,[::1]:1';
  const node = createHttp((_, answer) => answer.end(JSON.stringify({ registryAddress })));
  t.teardown(() => node.close());
  await once(node.listen(0, '127.0.0.1'), 'listening');
  const { port } = node.address() as { port: number };
  const env = { MATTING_EXECUTION_PROVIDER: 'cpu', MATTING_NODE_HTTP_PORT: `${port}` };
  const { of } = await examine(env);
  t.regex(of('registry').join(), /^failure: 127\.0\.0\.1:1: .*; \[::1\]:1: connect/);
  const proxy = { NODE_USE_ENV_PROXY: '1', HTTP_PROXY: 'http://127.0.0.1:9' };
  const options = {
    cwd: path.resolve(import.meta.dirname, '../..'),
    env: { ...STARTED_ENV, ...proxy },
  };
  const run = promisify(execFile);
  const ask = `await fetch('http://127.0.0.1:${port}')`;
  await t.notThrowsAsync(run('sh', ['bin/node24', '--input-type=module', '-e', ask], options));
  const check = ['deploy/images/healthcheck.ts', '', `${port}`];
  await t.notThrowsAsync(run(process.execPath, check, options));
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
  const { of } = await examine({ MATTING_EXECUTION_PROVIDER: 'cpu', MATTING_NODE_HTTP_PORT: '0' });
  t.regex(of('AVIF').join(), /^ok: libheif [\d.]+ reads it$/);
  const lines: string[] = [];
  const warn = (line: string) => void lines.push(line);
  for (const version of ['1.23.2', '1.9.9', '0.99.0', '1.22.10']) {
    t.throws(() => requireSafeLibheif(version, warn), { message: /take over the process/ });
  }
  for (const version of ['1.23.3', '1.23.10', '1.100.0', '2.0.0']) {
    t.notThrows(() => requireSafeLibheif(version, warn), version);
  }
  t.deepEqual(lines, []);
  requireSafeLibheif(undefined, warn);
  t.is(lines.length, 1);
});

test('examines the GPU that a node would take', async t => {
  const host = await openGpuHost(t, [gpuFacts('one'), gpuFacts('two', { index: 1 })]);
  const { folder: providerDir, childEnv } = host;
  await host.fault('load GPU-two CUDA failure 100: no CUDA-capable device is detected');
  const config = { executionProvider: 'auto', providerDir, childEnv } as const;
  const { provider, device } = await chooseProviderHere(
    { ...config, gpuDevice: undefined },
    SILENT,
  );
  t.deepEqual([provider.selected, device?.facts.id], ['cuda', 'GPU-one']);
  await t.throwsAsync(chooseProviderHere({ ...config, gpuDevice: 'GPU-two' }, SILENT), {
    message: /GPU-two|no CUDA-capable device/,
  });
});

test('counts as many engines as a start opens: a host bounds them, a GPU that is listed does not', async t => {
  const model = await writeTinyModel(await temporaryFolder(t), {});
  const plan = { name: 'tiny', models: [{ model, role: 'subject' as const }] };
  const config = { ...loadConfig({}), engines: 5000 };
  const { folder: providerDir, childEnv } = await openGpuHost(t, [gpuFacts('one')]);
  const onGpu = { executionProvider: 'cuda', gpuDevice: undefined, providerDir, childEnv } as const;
  const chosen = await chooseProviderHere(onGpu, SILENT);
  t.is(chosen.device?.facts.id, 'GPU-one');
  for (const selected of ['cpu', 'cuda'] as const) {
    const unlisted = { provider: { ...chosen.provider, selected }, device: undefined };
    await t.notThrowsAsync(describeMemory(config, plan, unlisted, SILENT), selected);
  }
  await t.throwsAsync(describeMemory(config, plan, chosen, SILENT), {
    message: /leave no room for a photo beside the engines/,
  });
  const one = await describeMemory({ ...config, engines: undefined }, plan, chosen, SILENT);
  t.regex(one, /for ([12]) engines \(\1 of each model for a GPU beside \d+ cores\) and/);
});
