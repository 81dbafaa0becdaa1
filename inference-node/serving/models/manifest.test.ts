import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ConfigError } from '@matting/program/config-error.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith, throwsWith } from '@matting/test-support/throws.ts';
import test, { type ExecutionContext } from 'ava';
import { isModelError } from '../test/is-model-error.ts';
import { parseModelSettings } from '../test/model-settings.ts';
import type { CommercialUse } from './licence.ts';
import {
  listManifests,
  loadManifest,
  MANIFEST_DIRECTORY,
  parseManifest,
  requireInputSize,
} from './manifest.ts';
import { ModelError, printable } from './model-error.ts';
import type { CommercialUseGate } from './model-settings.ts';
import {
  admittedOutlineOf,
  loadPlanOutlines,
  outlineOf,
  type PlanEntry,
  parsePlanOutlines,
  refusalsOf,
  requireAdmitted,
} from './plan.ts';

const isnet = await readFile(join(MANIFEST_DIRECTORY, 'isnet', 'manifest.json'), 'utf8');

/** isnet's manifest with one field set, or removed if the value is undefined. */
function withField(path: string, value: unknown): string {
  const manifest = JSON.parse(isnet);
  const keys = path.split('.');
  const last = keys.pop() as string;
  const owner = keys.reduce((object, key) => object[key], manifest);
  if (value === undefined) delete owner[last];
  else owner[last] = value;
  return JSON.stringify(manifest);
}

const BAD_FIELDS: Readonly<Record<string, readonly unknown[]>> = {
  name: [undefined, '../isnet'],
  version: [1, '../1'],
  descripton: ['misspelt'],
  description: ['two\nlines'],
  source: [null, []],
  'source.type': ['ftp'],
  'source.package': ['../x'],
  'source.integrity': ['sha1-abc'],
  'source.bytes': [0, 1.5],
  files: [[]],
  'files.0.name': ['a/b'],
  'files.0.sha256': ['B6'.repeat(32)],
  'files.0.bytes': [5],
  'files.0.parts.3.path': ['dist/../../x', '/etc/passwd'],
  'files.0.parts.3.size': [5],
  'graph.file': ['other.onnx'],
  'graph.precision': ['int8'],
  'graph.outputName': [''],
  precisions: [['fp32', 'fp32'], ['bf16']],
  'inputSize.default': [1000],
  'inputSize.listed': [
    [1024, 1000],
    [1024, 4096],
    [1024, null],
  ],
  'inputSize.max': [16],
  'inputSize.min': [16],
  'inputSize.int8': [[800]],
  'normalisation.mean': [[128, 128]],
  'normalisation.std': [[256, 0, 256]],
  colourOrder: ['grb'],
  activation: [undefined],
  'licence.origin': ['http://x'],
  'licence.weights': [undefined],
  'licence.trainingData': [undefined, 'DIS5K'],
  'licence.weights.commercialUse': ['perhaps', true],
  'licence.weights.reason': [''],
  'licence.trainingData.reason': [undefined],
  'licence.trainingData.source': ['a book'],
};

test('a field that is wrong, missing or unknown is refused by its name', t => {
  for (const [path, values] of Object.entries(BAD_FIELDS)) {
    const field = path.replaceAll(/\.(\d+)/g, '[$1]').replaceAll(/[.[\]]/g, '\\$&');
    const named = new RegExp(`^models/isnet/manifest\\.json: .*${field}\\b`);
    for (const value of values) {
      throwsWith(
        t,
        () => parseManifest(withField(path, value), 'models/isnet/manifest.json'),
        isModelError('manifest', named),
      );
    }
  }
  const withoutSizes = withField('inputSize.int8', null);
  t.throws(() => parseManifest(withoutSizes, 'a'), { message: /precisions must list int8 where/ });
});

function asItIs(graph: object, more: object = {}): string {
  const { files, ...manifest } = JSON.parse(isnet);
  const own = { file: 'isnet-fp16.onnx', precision: 'fp32', inputName: 'x', outputName: 'y' };
  return JSON.stringify({
    ...{ ...manifest, files, precisions: ['fp32'], inputSize: undefined },
    graph: { ...own, inputWidth: 1440, inputHeight: 2560, dynamic: false, ...graph },
    ...more,
  });
}

const SQUARE = { dynamic: true, inputWidth: 512, inputHeight: 512 };
const SIDES = { default: 512, listed: [512], multipleOf: 32, min: 32, max: 1024 };

test('a graph that runs as it is has a size of its own, or any of some, as it says', t => {
  const fixed = parseManifest(asItIs({ layout: 'nhwc', inputType: 'uint8' }), 'a');
  t.deepEqual(requireInputSize(fixed), { width: 1440, height: 2560 });
  t.deepEqual([fixed.inputSize.min, fixed.inputSize.max], [1440, 2560]);
  const more = { inputSize: SIDES, fit: 'short-side', activation: 'logit', inverted: true };
  const dynamic = parseManifest(asItIs(SQUARE, more), 'a');
  t.deepEqual(requireInputSize(dynamic), { width: 512, height: 512 });
  for (const [bad, message] of [
    [asItIs({}, { inputSize: SIDES }), /inputSize must be absent/],
    [asItIs(SQUARE), /inputSize is missing/],
    [asItIs({}, { fit: 'short-side' }), /fit must be another/],
    [asItIs({}, { precisions: ['fp32', 'fp16'] }), /precisions must be fp32 alone/],
    [asItIs({ ...SQUARE, inputWidth: 640 }, more), /inputHeight must be inputWidth, 640/],
    [asItIs({ ...SQUARE, inputHeight: 480 }, more), /inputSize\.default must be 480/],
    [
      asItIs({ ...SQUARE, inputWidth: 1040 }, { inputSize: SIDES }),
      /inputWidth must be a multiple/,
    ],
    [asItIs({ layout: 'nwhc' }), /graph\.layout must be one of nchw/],
    [asItIs({}, { measured: { peakBytes: 0 } }), /measured/],
    [asItIs({ dynamic: undefined }), /inputSize is missing/],
    [withField('graph.layout', 'nhwc'), /no layout but nchw/],
    [withField('fit', 'letterbox'), /no fit but stretch/],
    [withField('inverted', true), /no inverted/],
    [withField('activation', 'signed'), /no activation signed/],
  ] as const) {
    t.throws(() => parseManifest(bad, 'a'), { message });
  }
});

test('names from files are printed in one line without control characters', t => {
  t.is(printable('a\u001b[2J\n b\u202ec\u0000'), 'a\\u{1b}[2J b\\u{202e}c\\u{0}');
  t.is(new ModelError('prepare', 'für\u0007').message, 'für\\u{7}');
});

test('text that is not JSON, or not an object, is refused', t => {
  t.throws(() => parseManifest('{', 'a.json'), { message: /a\.json: not JSON/ });
  t.throws(() => parseManifest('[]', 'a.json'), {
    message: /a\.json: the whole must be an object/,
  });
});

test('every manifest that comes with the product is valid', async t => {
  const names = await listManifests();
  t.deepEqual(names, ['isnet', 'modnet', 'u2netp']);
  for (const name of names) {
    const manifest = await loadManifest(name);
    t.is(manifest.name, name);
    t.true(manifest.precisions.includes(manifest.graph.precision));
  }
});

test('an unknown name, and a directory of another name, are refused', async t => {
  await t.throwsAsync(loadManifest('../isnet'), {
    message: /there is no model "\.\.\/isnet": isnet, modnet, u2netp/,
  });
  const directory = await temporaryFolder(t);
  await t.throwsAsync(loadManifest('isnet', directory), {
    message: /there is no model "isnet": none in/,
  });
  await t.throwsAsync(loadManifest('isnet', join(directory, 'absent')), {
    message: /no model "isnet"/,
  });
  await mkdir(join(directory, 'other'));
  await writeFile(join(directory, 'other', 'manifest.json'), isnet);
  await t.throwsAsync(loadManifest('other', directory), {
    message: /name must be its directory's name/,
  });
});

test('a manifest is read again only after a change', async t => {
  const directory = await temporaryFolder(t);
  await mkdir(join(directory, 'isnet'));
  const file = join(directory, 'isnet', 'manifest.json');
  await writeFile(file, isnet);
  const first = await loadManifest('isnet', directory);
  t.is(await loadManifest('isnet', directory), first);
  await writeFile(file, withField('goodFor', 'something else'));
  t.is((await loadManifest('isnet', directory)).goodFor, 'something else');
});

test('an added model is found, replaces none that is shipped, and is there with its manifest', async t => {
  const shipped = await makeModels(t, { ours: ['yes', 'yes'] }, {});
  const own = { ours: ['no', 'no'], mine: ['no', 'yes'] } as const;
  const added = await makeModels(t, own, {});
  await mkdir(join(added, 'half'));
  t.deepEqual(await listManifests(shipped, added), ['mine', 'ours']);
  t.deepEqual(await listManifests(shipped, join(added, 'absent')), ['ours']);
  t.is((await loadManifest('ours', shipped, added)).licence.weights.commercialUse, 'yes');
  t.is((await loadManifest('mine', shipped, added)).licence.weights.commercialUse, 'no');
  await t.throwsAsync(loadManifest('half', shipped, added), {
    message: /there is no model "half": mine, ours/,
  });
  const gate = { commercialUse: 'weights', addedModelsDir: added } as const;
  const [refused, wayOut] = await problemsIn(() => requireAdmitted([entry('mine')], gate, shipped));
  t.regex(refused ?? '', /weights refuses mine \(subject\)/);
  t.regex(wayOut ?? '', /MATTING_MODEL must be ours, or /);
});

test('added models lie in the directory of data unless a variable says where', t => {
  for (const [env, expected] of [
    [{}, '/srv/data/models'],
    [{ MATTING_DATA_DIR: '/var/a' }, '/var/a/models'],
    [{ MATTING_DATA_DIR: '/var/a', MATTING_ADDED_MODELS_DIR: 'b' }, '/srv/b'],
  ] as const) {
    t.is(parseModelSettings(env, '/srv').addedModelsDir, expected);
  }
});

test('weights come from an address, or are a file, and only packages have parts', t => {
  const { source: _, files, ...rest } = JSON.parse(isnet);
  const { parts, ...file } = files[0];
  const parse = (source: object, own: object = file) =>
    parseManifest(JSON.stringify({ ...rest, source, files: [own] }), 'a');
  const url = 'https://models.example.com/a.onnx';
  const mirrors = ['http://127.0.0.1:80/a', 'http://localhost/a', 'http://[::1]:9/a'];
  for (const source of [{ type: 'file' }, { type: 'address', url, mirrors, revision: 'e48a207' }]) {
    t.deepEqual(parse(source).source, source as never);
    throwsWith(t, () => parse(source, { ...file, parts }), /files\[0\]\.parts must be there where/);
  }
  throwsWith(t, () => parse(JSON.parse(isnet).source), /files\[0\]\.parts must be there/);
  for (const [source, expected] of [
    [{ type: 'file', url }, /source\.url is not a known field/],
    [{ url }, /source\.type is missing/],
    [{ type: 'address' }, /source\.url is missing/],
    [{ type: 'address', url, mirrors: ['ftp://x/a'] }, /source\.mirrors\[0\] must be/],
    ...['http://example.com/a', 'http://127.0.0.1.example.com/a', 'file:///a', 'https://a b'].map(
      wrong => [{ type: 'address', url: wrong }, /source\.url must be/] as const,
    ),
  ] as const) {
    throwsWith(t, () => parse(source), expected);
  }
});

const subject = { model: 'isnet', inputSize: 1024, role: 'subject' };

test('a file of plans that is wrong is refused', t => {
  const plan = (...models: object[]) => JSON.stringify({ a: { goodFor: 'all', models } });
  const seeing = (input: string, unsureFrom = 0) => {
    return { ...subject, extraRuns: [{ input, unsureFrom }] };
  };
  const row = { goodFor: 'all', models: [subject] };
  const named = (...names: string[]) =>
    JSON.stringify(Object.fromEntries(names.map(name => [name, row])));
  t.is(parsePlanOutlines(named('My_plan.2'), 'plans.json').length, 1);
  for (const [plans, expected] of [
    ['{', /plans\.json: not JSON/],
    ['[]', /must be an object/],
    [JSON.stringify({ a: { models: [subject] } }), /a\.goodFor is missing/],
    [plan(), /a\.models must be a list of 1 to 4 models/],
    [plan(...Array(5).fill(subject)), /a\.models must be a list of 1 to 4 models/],
    [plan({ ...subject, role: 'opinion' }), /a subject/],
    [plan({ ...subject, role: 'refine' }), /a subject/],
    [plan(subject, { ...subject, role: 'refine' }, subject), /a must end with its one refine/],
    [plan({ ...subject, role: 'judge' }), /a\.models\[0\]\.role must be one of/],
    [plan({ ...subject, model: '../x' }), /a\.models\[0\]\.model must be/],
    [plan({ ...subject, weight: 1 }), /weight is not a known field/],
    [plan({ ...subject, extraRuns: [] }), /extraRuns must be a list, not empty/],
    [plan(seeing('turned')), /extraRuns\[0\]\.input must be one of mirrored, edges$/],
    [plan(seeing('edges', 2)), /extraRuns\[0\]\.unsureFrom must be a number from 0 to 1/],
    [named(''), /the name of plan 1 must be 1 to 64 letters/],
    [named('ok', 'A B'), /the name of plan 2 must be/],
    [named('a\u202Eb'), /^[ -~]*the name of plan 1 must be[ -~]*$/],
    [named('x'.repeat(65)), /the name of plan 1 must be/],
    [`{"__proto__":${JSON.stringify(row)}}`, /the name of plan 1 must be/],
    [named(...Array.from({ length: 65 }, (_, i) => `p${i}`)), /must be at most 64, and are 65/],
  ] as const) {
    throwsWith(t, () => parsePlanOutlines(plans, 'plans.json'), expected);
  }
});

test('the product has the plans of MATTING_QUALITY, with sizes that their models list', async t => {
  const outlines = await loadPlanOutlines();
  t.deepEqual(outlines.map(({ name }) => name).sort(), ['best', 'fast', 'permissive', 'standard']);
  for (const { entries } of outlines) {
    for (const { model, inputSize } of entries) {
      const { inputSize: sizes } = await loadManifest(model);
      t.true(inputSize !== undefined && sizes.listed.includes(inputSize), `${model} ${inputSize}`);
    }
  }
});

test('a plan asks for an opinion before its first model looks again: it judges a look in a frame', async t => {
  for (const { name, entries } of await loadPlanOutlines()) {
    const [first, ...others] = entries;
    const again = others.findIndex(({ model }) => model === first?.model);
    const opinion = others.findIndex(({ role }) => role === 'opinion');
    t.true(opinion < 0 || again < 0 || opinion < again, name);
  }
});

async function problemsIn(read: () => Promise<unknown>): Promise<readonly string[]> {
  try {
    await read();
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.problems.map(({ variable, expected }) => `${variable} must be ${expected}`);
  }
  return [];
}

const problemsOf = (env: Record<string, string>) =>
  problemsIn(() => admittedOutlineOf(parseModelSettings(env, '/srv')));

const terms = (commercialUse: CommercialUse) => ({
  ...{ commercialUse, reason: `It says ${commercialUse}.`, source: 'https://example.com/terms' },
});
const licence = (weights: CommercialUse, trainingData: CommercialUse) => ({
  ...{ spdx: 'MIT', origin: 'https://example.com/', weights: terms(weights) },
  trainingData: terms(trainingData),
});

async function makeModels(
  context: ExecutionContext,
  models: Readonly<Record<string, readonly [CommercialUse, CommercialUse]>>,
  plans: Readonly<Record<string, readonly PlanEntry[]>>,
): Promise<string> {
  const directory = await temporaryFolder(context);
  const isnet = await readFile(join(MANIFEST_DIRECTORY, 'isnet/manifest.json'), 'utf8');
  for (const [name, [weights, data]] of Object.entries(models)) {
    await mkdir(join(directory, name));
    const manifest = { ...JSON.parse(isnet), name, licence: licence(weights, data) };
    await writeFile(join(directory, name, 'manifest.json'), JSON.stringify(manifest));
  }
  const rows = Object.entries(plans).map(([name, of]) => [name, { goodFor: 'all', models: of }]);
  await writeFile(join(directory, 'plans.json'), JSON.stringify(Object.fromEntries(rows)));
  return directory;
}

const entry = (model: string): PlanEntry => ({ model, inputSize: 1024, role: 'subject' });

const uses = ['yes', 'no', 'unclear'] as const;
for (const weights of uses) {
  for (const data of uses) {
    test(`weights ${weights}, training data ${data}: what each gate says`, t => {
      const refused = (gate: CommercialUseGate | undefined) =>
        refusalsOf({ licence: licence(weights, data) }, gate).map(
          reason => /^commercial use of its (.+) is /.exec(reason)?.[1],
        );
      const ofWeights = weights === 'yes' ? [] : ['weights'];
      const ofData = data === 'yes' ? [] : ['training data'];
      t.deepEqual(refused(undefined), []);
      t.deepEqual(refused('weights'), ofWeights);
      t.deepEqual(refused('strict'), [...ofWeights, ...ofData]);
    });
  }
}

test('without a gate every plan and model may run, with the gate weights those of permissive weights', async t => {
  for (const { name } of await loadPlanOutlines()) {
    t.deepEqual(await problemsOf({ MATTING_QUALITY: name }), []);
  }
  t.deepEqual(await problemsOf({ MATTING_MODEL: 'isnet' }), []);
  const MATTING_COMMERCIAL_USE = 'weights';
  for (const env of [
    { MATTING_QUALITY: 'permissive' },
    { MATTING_MODEL: 'modnet' },
    { MATTING_MODEL: 'u2netp' },
  ]) {
    t.deepEqual(await problemsOf({ ...env, MATTING_COMMERCIAL_USE }), []);
  }
  const [refused = '', wayOut = '', ...others] = await problemsOf({ MATTING_COMMERCIAL_USE });
  t.regex(refused, /^MATTING_COMMERCIAL_USE must be met .*weights refuses isnet \(subject/);
  t.regex(wayOut, /^MATTING_QUALITY must be permissive, or MATTING_MODEL modnet or u2netp, or /);
  t.deepEqual(others, []);
});

test('strict starts none of the bundled models, and says so', async t => {
  for (const { name, entries } of await loadPlanOutlines()) {
    const problems = await problemsOf({ MATTING_QUALITY: name, MATTING_COMMERCIAL_USE: 'strict' });
    const models = [...new Set(entries.map(({ model }) => model))];
    const refused = problems.slice(0, -1).map(text => /strict refuses (\w+) /.exec(text)?.[1]);
    t.deepEqual(refused, models);
  }
  for (const model of ['isnet', 'modnet', 'u2netp']) {
    const env = { MATTING_MODEL: model, MATTING_COMMERCIAL_USE: 'strict' };
    t.is((await problemsOf(env)).length, 2, model);
  }
});

test('an own model whose manifest permits both runs under strict, and is what a refusal names', async t => {
  const models = { bought: ['yes', 'yes'], found: ['yes', 'unclear'] } as const;
  const directory = await makeModels(t, models, { ours: [entry('bought')] });
  const addedModelsDir = await temporaryFolder(t);
  const under = (commercialUse: CommercialUseGate, ...entries: PlanEntry[]) =>
    requireAdmitted(entries, { commercialUse, addedModelsDir }, directory);
  await under('strict', entry('bought'));
  await under('weights', entry('bought'), entry('found'));
  const [refused, wayOut] = await problemsIn(() =>
    under('strict', entry('bought'), entry('found')),
  );
  t.regex(refused ?? '', /^MATTING_COMMERCIAL_USE .* strict refuses found .* training data /);
  t.regex(wayOut ?? '', /^MATTING_QUALITY must be ours, or MATTING_MODEL bought/);
});

const settingProblems = (env: Record<string, string>) =>
  problemsIn(async () => void parseModelSettings(env, '/srv'));

test('MATTING_MODEL names a plan, shipped or added, or else a model', async t => {
  const addedModelsDir = await temporaryFolder(t);
  const plans = { 'Hair.2': { goodFor: 'hair', models: [entry('isnet'), entry('u2netp')] } };
  await writeFile(join(addedModelsDir, 'plans.json'), JSON.stringify(plans));
  const outline = (env: Record<string, string>) =>
    outlineOf(parseModelSettings({ MATTING_ADDED_MODELS_DIR: addedModelsDir, ...env }, '/srv'));
  const named = async (name: string) => {
    const { entries } = await outline({ MATTING_MODEL: name });
    return [...new Set(entries.map(({ model }) => model))];
  };
  t.deepEqual(await named('Hair.2'), ['isnet', 'u2netp']);
  t.deepEqual(await named('permissive'), ['u2netp', 'modnet']);
  t.deepEqual(await named('modnet'), ['modnet']);
  const precise = { MATTING_PRECISION: 'fp32' };
  t.is((await outline({ MATTING_MODEL: 'isnet', ...precise })).name, 'isnet');
  const message = /MATTING_MODEL must be a model where .*; fast is a plan$/;
  await t.throwsAsync(outline({ MATTING_MODEL: 'fast', ...precise }), { message });
});

test('a model with a trimap refines in plans alone, and a model without one never refines', async t => {
  const models = { mine: ['yes', 'yes'], edges: ['yes', 'yes'] } as const;
  const addedModelsDir = await makeModels(t, models, {});
  const file = join(addedModelsDir, 'edges', 'manifest.json');
  const { graph, inputSize: _, ...edges } = JSON.parse(await readFile(file, 'utf8'));
  const refining = { ...graph, dynamic: false, trimap: true };
  const precisions = [graph.precision];
  await writeFile(file, JSON.stringify({ ...edges, precisions, graph: refining }));
  const given = (model: string, role = 'subject') => ({ model, role });
  const plans = {
    good: { goodFor: 'hair', models: [given('mine'), given('edges', 'refine')] },
    three: { goodFor: 'hair', models: [given('mine'), given('mine', 'refine')] },
    second: { goodFor: 'hair', models: [given('mine'), given('edges', 'secondLook')] },
  };
  await writeFile(join(addedModelsDir, 'plans.json'), JSON.stringify(plans));
  const started = (name: string) => {
    const env = { MATTING_MODEL: name, MATTING_ADDED_MODELS_DIR: addedModelsDir };
    return admittedOutlineOf(parseModelSettings(env, '/srv'));
  };
  t.is((await started('good')).goodFor, 'hair');
  for (const [name, message] of [
    ['three', /^the plan three cannot run: mine takes a picture without a trimap, .* of four/],
    ['second', /^the plan second .*: edges refines another model's matte, .* as second look; name/],
    ['edges', /^the plan edges cannot run: edges refines another model's matte, .* as subject; /],
  ] as const) {
    await rejectsWith(t, started(name), isModelError('settings', message));
  }
});

test('settings of models that contradict each other, or that are none, are refused', async t => {
  for (const [env, expected] of [
    ...['yes', 'Weights', 'true', '1'].map(gate => [
      { MATTING_COMMERCIAL_USE: gate },
      ['MATTING_COMMERCIAL_USE must be one of weights, strict'],
    ]),
    [
      { MATTING_PRECISION: 'fp32' },
      ['MATTING_PRECISION must be set together with MATTING_MODEL only'],
    ],
    [
      { MATTING_MODEL: 'isnet', MATTING_QUALITY: 'best' },
      ['MATTING_QUALITY must be unset where MATTING_MODEL names what the node serves'],
    ],
    [{ MATTING_PRECISION: 'auto' }, []],
    [{ MATTING_QUALITY: 'fast' }, []],
  ] as [Record<string, string>, string[]][]) {
    t.deepEqual(await settingProblems(env), expected, JSON.stringify(env));
  }
  t.is((await settingProblems({ MATTING_PRECISION: 'fp32' })).length, 1);
  t.is((await settingProblems({ MATTING_QUALITY: 'finest' })).length, 1);
});
