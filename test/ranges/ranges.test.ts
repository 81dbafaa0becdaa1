import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import ava from 'ava';
import { rangeOfAll } from '../../bench/observe-ranges.ts';
import { planQuantisation } from '../../inference-node/model-tools/onnx/plan-quantisation.ts';
import { exactInputScale, fitRanges } from '../../inference-node/model-tools/preparing/prepare.ts';
import { makeTinyModel } from '../../inference-node/model-tools/test/fake-registry.ts';
import { prepareTinyGraph, tinyGraph } from '../../inference-node/model-tools/test/tiny-graph.ts';
import {
  listManifests,
  loadManifest,
  MANIFEST_DIRECTORY,
  type ModelManifest,
} from '../../inference-node/serving/models/manifest.ts';
import { CHECK_BLOCKS } from '../../inference-node/serving/prepared/answer-check.ts';
import {
  formatRanges,
  loadRanges,
  parseRanges,
  type Ranges,
} from '../../inference-node/serving/prepared/ranges.ts';
import { isModelError } from '../../inference-node/serving/test/is-model-error.ts';
import { at } from '../support/at.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { rejectsWith } from '../support/throws.ts';

const test = ava.serial;

const directory = await temporaryFolder({ teardown: test.after.always });

const SIDE = 64;
let manifest: ModelManifest;

const graph = prepareTinyGraph(tinyGraph({ side: SIDE }));
const { measured } = planQuantisation(graph, { inputIsExact: true });

function ranges(more: Partial<Ranges> = {}): Ranges {
  return {
    model: 'tiny',
    version: '1.0.0',
    weightsSha256: at(manifest.files, 0).sha256,
    inputSize: SIDE,
    quantile: 0.0002,
    photos: [{ name: 'one.jpg', sha256: 'ab'.repeat(32) }],
    float32: [],
    ranges: new Map(measured.map(name => [name, [0, 2]])),
    checkAnswer: new Array(CHECK_BLOCKS).fill(7),
    ...more,
  };
}

test.before(async () => {
  ({ manifest } = await makeTinyModel(1000));
  await mkdir(join(directory, 'tiny'));
});

async function load(text: string) {
  await writeFile(join(directory, 'tiny', 'ranges-64.json'), text);
  return loadRanges(manifest, SIDE, directory);
}

const isManifestError = (pattern: RegExp) => isModelError('manifest', pattern);

test('a file that is none, of something else, or with other fields is refused by its path', async t => {
  await rejectsWith(t, loadRanges(manifest, 96, directory), isManifestError(/ranges-96.*missing/));
  const whole = formatRanges(ranges());
  const { photos: _photos, ...without } = JSON.parse(whole);
  const changed = (more: object) => JSON.stringify({ ...JSON.parse(whole), ...more });
  for (const [text, pattern] of [
    [whole.slice(0, 500), /ranges-64\.json: not JSON/],
    ['[]', /must be an object/],
    [changed({ weightsSha256: '0'.repeat(64) }), /weightsSha256 is 0000/],
    [changed({ version: '0.9.0' }), /version is 0\.9\.0, not 1\.0\.0: .*calibrate -- tiny/],
    [changed({ model: 'other' }), /model is other/],
    [changed({ inputSize: 96 }), /inputSize is 96, not 64/],
    [JSON.stringify(without), /photos is missing/],
    [changed({ note: 'hello' }), /note is not a known field/],
    [changed({ checkAnswer: [1, 2, 3] }), /must be 256 numbers/],
  ] as const) {
    await rejectsWith(t, load(text), isManifestError(pattern));
  }
  const wanted = ranges({ float32: [at(measured, 0)], percentOfMedianMax: 150 });
  t.deepEqual(parseRanges(formatRanges(wanted), 'here'), wanted, 'a good one reads as it was');
});

test('an invalid range is refused with the name of its value', async t => {
  const first = at(measured, 0);
  for (const [written, pattern] of [
    ['[1, 0]', /must begin at most at 0/],
    ['[0, 0]', /must begin below its end/],
    ['[0.5, 2]', /must begin at most at 0/],
    ['[-2, -1]', /end at least there/],
    ['[0, null]', /\[1\] must be a number/],
    ['[0, 1e999]', /\[1\] must be a number/],
    ['["0", "1"]', /\[0\] must be a number/],
    ['[0]', /must be two numbers/],
    ['3', /must be two numbers/],
  ] as const) {
    const one = formatRanges(ranges({ ranges: new Map([[first, [0, 12345]]]) }));
    const text = one.replace('[0,12345]', written);
    t.not(text, one);
    await rejectsWith(t, load(text), isManifestError(pattern));
    await rejectsWith(t, load(text), isManifestError(new RegExp(first.replaceAll('.', '\\.'))));
  }
  // JSON has no NaN, but a careless writer may write it.
  const text = formatRanges(ranges()).replace('[0,2]', '[NaN,2]');
  await rejectsWith(t, load(text), isManifestError(/not JSON/));
});

test('a range reaches as far as any photo, except photos far beyond the others', t => {
  const of = (percentMax: number, ...photos: [number, number][]) => rangeOfAll(photos, percentMax);
  const photos = [8, 5, 57, 6, 7].map((upper): [number, number] => [-upper / 10, upper]);
  t.deepEqual(of(Number.POSITIVE_INFINITY, ...photos), [-5.7, 57]);
  t.deepEqual(of(150, ...photos), [-1.05, 10.5]);
  // A bound that no photo reaches does not extend the range.
  t.deepEqual(of(150, [0, 5], [0, 6], [0, 7]), [0, 7]);
  // Most photos are 0, so there is no usual end; 0 is still included.
  t.deepEqual(of(150, [0, 0], [0.2, 0], [-3, 4]), [-3, 4]);
  t.true(of(150, [0, 0])[1] > 0);
});

test('ranges that lack a value of the graph, or have one too many, are refused', async t => {
  const [first, ...rest] = measured;
  const all = ranges().ranges;
  const fitted = async (more: Partial<Ranges>) =>
    fitRanges(await load(formatRanges(ranges(more))), manifest, graph);
  for (const [more, pattern] of [
    [
      { ranges: new Map(rest.map(name => [name, [0, 2] as const])) },
      new RegExp(`does not fit the graph of tiny: it has no ${first}`),
    ],
    [{ ranges: new Map([...all, ['elsewhere', [0, 1] as const]]) }, /the graph has no elsewhere/],
    [{ float32: ['nobody'] }, /makes no nobody/],
  ] as const) {
    await rejectsWith(t, fitted(more), isManifestError(pattern));
  }
  t.deepEqual((await fitted({})).ranges, all);
});

test('only the same normalisation for all channels keeps the picture exact', t => {
  const of = (mean: [number, number, number], std: [number, number, number]) =>
    exactInputScale({ ...manifest, normalisation: { mean, std } });
  t.deepEqual(of([128, 128, 128], [256, 256, 256]), { scale: 1 / 256, zeroPoint: 128 });
  t.is(of([127.5, 127.5, 127.5], [127.5, 127.5, 127.5]), undefined);
  t.is(of([123.675, 116.28, 103.53], [58.395, 57.12, 57.375]), undefined);
});

test('every size that a manifest lists for int8 has a valid ranges file', async t => {
  let found = 0;
  for (const name of await listManifests(MANIFEST_DIRECTORY)) {
    const model = await loadManifest(name);
    for (const side of model.inputSize.int8 ?? []) {
      const file = await loadRanges(model, side);
      t.true(file.ranges.photos.length >= 12, `${file.name} was made from few photos`);
      t.true(Math.max(...file.ranges.checkAnswer) > 200, 'the model finds the subject');
      t.true(Math.min(...file.ranges.checkAnswer) < 50, 'and the background');
      found++;
    }
  }
  t.true(found > 0);
});
