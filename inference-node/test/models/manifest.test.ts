import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import { throwsWith } from '../../../test/support/throws.ts';
import {
  listManifests,
  loadManifest,
  MANIFEST_DIRECTORY,
  parseManifest,
} from '../../src/models/manifest.ts';
import { QUALITIES } from '../../src/models/model-settings.ts';
import { loadPlanOutlines, parsePlanOutlines } from '../../src/models/plan.ts';
import { isModelError } from './is-model-error.ts';

const isnet = await readFile(join(MANIFEST_DIRECTORY, 'isnet', 'manifest.json'), 'utf8');

/** isnet's manifest with one field set, or removed where the value is undefined. */
function withField(path: string, value: unknown): string {
  const manifest = JSON.parse(isnet);
  const keys = path.split('.');
  const last = keys.pop() as string;
  const owner = keys.reduce((object, key) => object[key], manifest);
  if (value === undefined) delete owner[last];
  else owner[last] = value;
  return JSON.stringify(manifest);
}

const BAD_FIELDS: readonly (readonly [path: string, value: unknown, message: RegExp])[] = [
  ['name', undefined, /name is missing/],
  ['name', '../isnet', /name must be a string that matches/],
  ['version', 1, /version must be a string that matches/],
  ['version', '../1', /version must be a string that matches/],
  ['descripton', 'misspelt', /descripton is not a known field/],
  ['description', 'two\nlines', /description must be a string that matches/],
  ['source', null, /source is missing/],
  ['source', [], /source must be an object/],
  ['source.type', 'ftp', /source\.type must be one of npm/],
  ['source.package', '../x', /source\.package must be a string that matches/],
  ['source.integrity', 'sha1-abc', /source\.integrity must be a string that matches/],
  ['source.bytes', 0, /source\.bytes must be a whole number from 1/],
  ['source.bytes', 1.5, /source\.bytes must be a whole number/],
  ['files', [], /files must be a list, not empty/],
  ['files.0.name', 'a/b', /files\[0\]\.name must be a string that matches/],
  ['files.0.sha256', 'B6'.repeat(32), /files\[0\]\.sha256 must be a string that matches/],
  ['files.0.bytes', 5, /files\[0\]\.bytes must be the sum of its parts, 88188479/],
  [
    'files.0.parts.3.path',
    'dist/../../x',
    /files\[0\]\.parts\[3\]\.path must be a string that matches/,
  ],
  [
    'files.0.parts.3.path',
    '/etc/passwd',
    /files\[0\]\.parts\[3\]\.path must be a string that matches/,
  ],
  ['files.0.parts.3.size', 5, /files\[0\]\.parts\[3\]\.size is not a known field/],
  ['graph.file', 'other.onnx', /graph\.file must be one of isnet-fp16\.onnx/],
  ['graph.precision', 'int8', /graph\.precision must be one of fp32, fp16/],
  ['graph.outputName', '', /graph\.outputName must be a string that matches/],
  ['precisions', ['fp32', 'fp32'], /precisions must be a list without repetitions/],
  ['precisions', ['bf16'], /precisions\[0\] must be one of fp32, fp16, int8/],
  ['inputSize.default', 1000, /inputSize\.default must be one of listed/],
  ['inputSize.listed', [1024, 1000], /inputSize\.listed has 1000, not a multiple of 32/],
  ['inputSize.max', 16, /inputSize\.max must be at least min, 256/],
  ['inputSize.min', 16, /inputSize\.min must be at least multipleOf, 32/],
  ['inputSize.listed', [1024, 4096], /inputSize\.listed has 4096, .* from 256 to 2048/],
  ['inputSize.listed', [1024, null], /inputSize\.listed\[1\] must be a whole number/],
  ['inputSize.int8', [800], /inputSize\.int8 has 800, not one of listed/],
  ['inputSize.int8', null, /precisions must list int8 where inputSize\.int8 has sizes, and only/],
  [
    'normalisation.mean',
    [128, 128],
    /normalisation\.mean must be three numbers, for red, green and blue/,
  ],
  ['normalisation.std', [256, 0, 256], /normalisation\.std\[1\] must be a number above 0/],
  ['colourOrder', 'grb', /colourOrder must be one of rgb, bgr/],
  ['activation', undefined, /activation is missing/],
  ['licence.origin', 'http://x', /licence\.origin must be a string that matches/],
  ['licence.weights', undefined, /licence\.weights is missing/],
  ['licence.trainingData', undefined, /licence\.trainingData is missing/],
  ['licence.trainingData', 'DIS5K', /licence\.trainingData must be an object/],
  [
    'licence.weights.commercialUse',
    'perhaps',
    /licence\.weights\.commercialUse must be one of yes, no, unclear/,
  ],
  ['licence.weights.commercialUse', true, /commercialUse must be one of yes, no, unclear/],
  ['licence.weights.reason', '', /licence\.weights\.reason must be a string that matches/],
  ['licence.trainingData.reason', undefined, /licence\.trainingData\.reason is missing/],
  ['licence.trainingData.source', 'a book', /licence\.trainingData\.source must be a string/],
];

for (const [path, value, message] of BAD_FIELDS) {
  test(`${path} ${value === undefined ? 'missing' : `= ${JSON.stringify(value)}`}`, t => {
    const named = new RegExp(`^models/isnet/manifest\\.json: .*${message.source}`);
    throwsWith(
      t,
      () => parseManifest(withField(path, value), 'models/isnet/manifest.json'),
      isModelError('manifest', named),
    );
  });
}

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

const subject = { model: 'isnet', inputSize: 1024, role: 'subject' };

for (const [what, plans, said] of [
  ['not JSON', '{', /plans\.json: not JSON/],
  ['a list', '[]', /must be an object/],
  ['no models', '{"fast": []}', /fast must be a list of 1 to 4 models/],
  ['an opinion first', JSON.stringify({ a: [{ ...subject, role: 'opinion' }] }), /a subject/],
  [
    'no such role',
    JSON.stringify({ a: [{ ...subject, role: 'judge' }] }),
    /a\[0\]\.role must be one of/,
  ],
  [
    'a path',
    JSON.stringify({ a: [{ ...subject, model: '../x' }] }),
    /a\[0\]\.model must be a string that matches/,
  ],
  [
    'a field too many',
    JSON.stringify({ a: [{ ...subject, weight: 1 }] }),
    /weight is not a known field/,
  ],
  [
    'too many models',
    JSON.stringify({ a: Array(5).fill(subject) }),
    /a must be a list of 1 to 4 models/,
  ],
] as const) {
  test(`a file of plans is refused: ${what}`, t => {
    throwsWith(t, () => parsePlanOutlines(plans, 'plans.json'), said);
  });
}

test('the product has the plans of MATTING_QUALITY, with sizes that their models list', async t => {
  const outlines = await loadPlanOutlines();
  t.deepEqual(outlines.map(({ name }) => name).sort(), [...QUALITIES].sort());
  for (const { entries } of outlines) {
    for (const { model, inputSize } of entries) {
      const { inputSize: sizes } = await loadManifest(model);
      t.true(inputSize !== undefined && sizes.listed.includes(inputSize), `${model} ${inputSize}`);
    }
  }
});
