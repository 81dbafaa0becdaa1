import assert from 'node:assert/strict';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { ConfigError } from '#program/env.ts';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import { rejectsWith } from '../../../test/support/throws.ts';
import { admittedOutlineOf, refusalsOf, requireAdmitted } from '../../src/models/commercial-use.ts';
import { COMMERCIAL_USES, type CommercialUse, describeTerms } from '../../src/models/licence.ts';
import { loadManifest, MANIFEST_DIRECTORY } from '../../src/models/manifest.ts';
import { type CommercialUseGate, parseModelSettings } from '../../src/models/model-settings.ts';
import { loadPlanOutlines, type PlanEntry } from '../../src/models/plan.ts';

/** What `read` reports, one text a variable; none where it accepts all. */
async function problemsIn(read: () => Promise<unknown>): Promise<readonly string[]> {
  try {
    await read();
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.problems.map(({ variable, expected }) => `${variable} must be ${expected}`);
  }
  return [];
}

/** None where the models are admitted. */
const problemsOf = (env: Record<string, string>) =>
  problemsIn(() => admittedOutlineOf(parseModelSettings(env, '/srv')));

const terms = (commercialUse: CommercialUse) => ({
  ...{ commercialUse, reason: `It says ${commercialUse}.`, source: 'https://example.com/terms' },
});
const licence = (weights: CommercialUse, trainingData: CommercialUse) => ({
  ...{ spdx: 'MIT', origin: 'https://example.com/', weights: terms(weights) },
  trainingData: terms(trainingData),
});

/** A folder of models: isnet's manifest under other names and terms, and no plan. */
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
  await writeFile(join(directory, 'plans.json'), JSON.stringify(plans));
  return directory;
}

const entry = (model: string): PlanEntry => ({ model, inputSize: 1024, role: 'subject' });

for (const weights of COMMERCIAL_USES) {
  for (const data of COMMERCIAL_USES) {
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

test('without a gate every plan and model may run', async t => {
  for (const { name } of await loadPlanOutlines()) {
    t.deepEqual(await problemsOf({ MATTING_QUALITY: name }), []);
  }
  t.deepEqual(await problemsOf({ MATTING_MODEL: 'isnet' }), []);
});

test('a refused plan names each model, its roles, why and where that is written, and what to do', async t => {
  const [refused = '', wayOut = '', ...others] = await problemsOf({
    MATTING_COMMERCIAL_USE: 'weights',
  });
  t.regex(refused, /^MATTING_COMMERCIAL_USE must be met by every model: weights refuses /);
  t.regex(refused, /isnet \(subject and second look\); commercial use of its weights is unc/);
  t.regex(refused, /states no licence for the weights.* https:\/\/github\.com\/xuebinqin\/DIS/);
  t.notRegex(refused, /training data is/);
  t.regex(
    wayOut,
    /^MATTING_QUALITY must be permissive, or MATTING_MODEL modnet or u2netp, or a model of your own /,
  );
  t.deepEqual(others, []);
});

test('strict starts none of the bundled models, and says so', async t => {
  const outlines = await loadPlanOutlines();
  for (const { name, entries } of outlines) {
    const problems = await problemsOf({ MATTING_QUALITY: name, MATTING_COMMERCIAL_USE: 'strict' });
    const models = [...new Set(entries.map(({ model }) => model))];
    t.is(problems.length, models.length + 1);
    for (const [index, model] of models.entries()) {
      t.regex(problems[index] ?? '', new RegExp(`strict refuses ${model} \\(`));
      t.regex(problems[index] ?? '', /commercial use of its training data is /);
    }
    const expected = /^MATTING_MODEL must be a model of your own .* none of isnet, modnet, u2netp$/;
    t.regex(problems.at(-1) ?? '', expected);
  }
  for (const model of ['isnet', 'modnet', 'u2netp']) {
    const env = { MATTING_MODEL: model, MATTING_COMMERCIAL_USE: 'strict' };
    t.is((await problemsOf(env)).length, 2, model);
  }
});

test('a plan or model with permissive weights runs under weights', async t => {
  const permissive = { MATTING_QUALITY: 'permissive', MATTING_COMMERCIAL_USE: 'weights' };
  t.deepEqual(await problemsOf(permissive), []);
  for (const model of ['modnet', 'u2netp']) {
    const env = { MATTING_MODEL: model, MATTING_COMMERCIAL_USE: 'weights' };
    t.deepEqual(await problemsOf(env), []);
  }
});

test('an own model whose manifest permits both runs under strict, and is what a refusal names', async t => {
  const models = { bought: ['yes', 'yes'], found: ['yes', 'unclear'] } as const;
  const directory = await makeModels(t, models, { ours: [entry('bought')] });
  await requireAdmitted([entry('bought')], 'strict', directory);
  await requireAdmitted([entry('bought'), entry('found')], 'weights', directory);
  await rejectsWith(t, requireAdmitted([entry('bought'), entry('found')], 'strict', directory), {
    problems: [
      {
        variable: 'MATTING_COMMERCIAL_USE',
        expected:
          'met by every model: strict refuses found (subject); commercial use of its training ' +
          'data is unclear: It says unclear. https://example.com/terms',
      },
      {
        variable: 'MATTING_QUALITY',
        expected:
          'ours, or MATTING_MODEL bought, or a model of your own (models/README.md, ' +
          '"Commercial use")',
      },
    ],
  });
});

test('what is said of the terms is one line that names each model once', async t => {
  const outline = (await loadPlanOutlines()).find(({ name }) => name === 'standard');
  const manifests = outline?.entries.map(({ model }) => loadManifest(model)) ?? [];
  t.is(
    describeTerms('standard', await Promise.all(manifests)),
    'plan standard, commercial use: isnet weights unclear, training data no; ' +
      'modnet weights yes, training data unclear (models/README.md)',
  );
});

/** What is said of the variables alone. */
const settingProblems = (env: Record<string, string>) =>
  problemsIn(async () => void parseModelSettings(env, '/srv'));

test('a gate on commercial use has no other names', async t => {
  for (const gate of ['yes', 'Weights', 'true', '1']) {
    t.deepEqual(await settingProblems({ MATTING_COMMERCIAL_USE: gate }), [
      'MATTING_COMMERCIAL_USE must be one of weights, strict',
    ]);
  }
});

test('size and precision need a named model', async t => {
  t.deepEqual(await settingProblems({ MATTING_MODEL_INPUT_SIZE: '768' }), [
    'MATTING_MODEL_INPUT_SIZE must be set together with MATTING_MODEL only',
  ]);
  t.is((await settingProblems({ MATTING_PRECISION: 'fp32' })).length, 1);
  t.deepEqual(await settingProblems({ MATTING_PRECISION: 'auto' }), []);
});

test('a plan and a single model exclude each other', async t => {
  t.deepEqual(await settingProblems({ MATTING_MODEL: 'isnet', MATTING_QUALITY: 'best' }), [
    'MATTING_QUALITY must be unset where MATTING_MODEL names a single model',
  ]);
  t.is((await settingProblems({ MATTING_QUALITY: 'finest' })).length, 1);
  t.is(parseModelSettings({ MATTING_QUALITY: 'fast' }, '/srv').quality, 'fast');
});

test('unset and empty variables have the defaults', t => {
  const defaults = {
    model: undefined,
    quality: 'standard',
    modelDir: '/srv/model-cache',
    weightsDir: undefined,
    inputSize: undefined,
    precision: 'auto',
    commercialUse: undefined,
  };
  t.deepEqual(parseModelSettings({}, '/srv'), defaults);
  const empty = {
    MATTING_COMMERCIAL_USE: '',
    MATTING_MODEL: '',
    MATTING_MODEL_DIR: '',
    MATTING_MODEL_INPUT_SIZE: '',
    MATTING_WEIGHTS_DIR: '',
  };
  t.deepEqual(parseModelSettings(empty, '/srv'), defaults);
});

test('variables that are set are used', t => {
  const env = {
    MATTING_MODEL: 'u2netp',
    MATTING_MODEL_DIR: '../cache',
    MATTING_MODEL_INPUT_SIZE: '768',
    MATTING_PRECISION: 'int8',
    MATTING_COMMERCIAL_USE: 'strict',
    MATTING_WEIGHTS_DIR: 'weights',
  };
  t.deepEqual(parseModelSettings(env, '/srv'), {
    model: 'u2netp',
    quality: 'standard',
    modelDir: '/cache',
    weightsDir: '/srv/weights',
    inputSize: 768,
    precision: 'int8',
    commercialUse: 'strict',
  });
});
