import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import ava from 'ava';
import { rangeOfAll } from '../../../../bench/observe-ranges.ts';
import { at } from '../../../../test/support/at.ts';
import { temporaryFolder } from '../../../../test/support/temporary-folder.ts';
import { rejectsWith } from '../../../../test/support/throws.ts';
import {
  listManifests,
  loadManifest,
  MANIFEST_DIRECTORY,
  type ModelManifest,
} from '../../../src/models/manifest.ts';
import { planQuantisation } from '../../../src/models/onnx/quantisation-plan.ts';
import { CHECK_BLOCKS } from '../../../src/models/preparing/check-picture.ts';
import {
  exactInputScale,
  fitRanges,
  formatRanges,
  loadRanges,
  parseRanges,
  type Ranges,
} from '../../../src/models/preparing/ranges.ts';
import { isModelError } from '../is-model-error.ts';
import { prepareTinyGraph, tinyGraph } from '../onnx/tiny-graph.ts';
import { makeTinyModel } from '../weights/fake-registry.ts';

const test = ava.serial;

const SIDE = 64;
const directory = await temporaryFolder({ teardown: test.after.always });
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

test('a file that is missing, cut short, or not JSON is refused by its path', async t => {
  await rejectsWith(t, loadRanges(manifest, 96, directory), isManifestError(/ranges-96.*missing/));
  const text = formatRanges(ranges());
  await rejectsWith(t, load(text.slice(0, 500)), isManifestError(/ranges-64\.json: not JSON/));
  await rejectsWith(t, load('[]'), isManifestError(/must be an object/));
});

test('ranges of other weights, another version, model or size are refused', async t => {
  for (const [more, pattern] of [
    [{ weightsSha256: '0'.repeat(64) }, /weightsSha256 is 0000/],
    [{ version: '0.9.0' }, /version is 0\.9\.0, not 1\.0\.0: .*npm run calibrate -- tiny/],
    [{ model: 'other' }, /model is other/],
    [{ inputSize: 96 }, /inputSize is 96, not 64/],
  ] as const) {
    await rejectsWith(t, load(formatRanges(ranges(more))), isManifestError(pattern));
  }
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
  // JSON has no NaN; a careless writer's file is not JSON.
  const text = formatRanges(ranges()).replace('[0,2]', '[NaN,2]');
  await rejectsWith(t, load(text), isManifestError(/not JSON/));
});

test('a missing field, an unknown one and an answer of another length are refused', async t => {
  const file = JSON.parse(formatRanges(ranges()));
  const { photos: _photos, ...without } = file;
  await rejectsWith(t, load(JSON.stringify(without)), isManifestError(/photos is missing/));
  const more = { ...file, note: 'hello' };
  await rejectsWith(t, load(JSON.stringify(more)), isManifestError(/note is not a known field/));
  const short = { ...file, checkAnswer: [1, 2, 3] };
  await rejectsWith(t, load(JSON.stringify(short)), isManifestError(/must be 256 numbers/));
});

test('an invalid bound by the median is refused', async t => {
  const text = formatRanges(ranges({ percentOfMedianMax: 150 }));
  t.is((await load(text)).ranges.percentOfMedianMax, 150);
  for (const written of ['99', '150.5', '10001', '"150"', '-1', '[150]']) {
    const one = text.replace('"percentOfMedianMax": 150', `"percentOfMedianMax": ${written}`);
    t.not(one, text);
    const pattern = /percentOfMedianMax must be a whole number from 100 to 10000/;
    await rejectsWith(t, load(one), isManifestError(pattern));
  }
});

test('a range reaches as far as any photo, except photos far beyond the others', t => {
  const photos = [8, 5, 57, 6, 7].map(upper => [-upper / 10, upper] as const);
  t.deepEqual(rangeOfAll(photos, Number.POSITIVE_INFINITY), [-5.7, 57]);
  t.deepEqual(rangeOfAll(photos, 150), [-1.05, 10.5]);
  // A bound that no photo reaches does not extend the range.
  t.deepEqual(
    rangeOfAll(
      [
        [0, 5],
        [0, 6],
        [0, 7],
      ],
      150,
    ),
    [0, 7],
  );
  // Most photos have nothing there, so there is no usual end; 0 is included all the same.
  t.deepEqual(
    rangeOfAll(
      [
        [0, 0],
        [0.2, 0],
        [-3, 4],
      ],
      150,
    ),
    [-3, 4],
  );
  t.true(rangeOfAll([[0, 0]], 150)[1] > 0);
});

test('ranges that lack a value of the graph, or have one too many, are refused', async t => {
  const [first, ...rest] = measured;
  const all = ranges().ranges;
  const fit = async (more: Partial<Ranges>) => {
    const file = await load(formatRanges(ranges(more)));
    return fitRanges(file, manifest, graph);
  };
  await rejectsWith(
    t,
    fit({ ranges: new Map(rest.map(name => [name, [0, 2]])) }),
    isManifestError(new RegExp(`does not fit the graph of tiny: it has no ${first}`)),
  );
  await rejectsWith(
    t,
    fit({ ranges: new Map([...all, ['elsewhere', [0, 1]]]) }),
    isManifestError(/the graph has no elsewhere/),
  );
  await rejectsWith(t, fit({ float32: ['nobody'] }), isManifestError(/makes no nobody/));
  t.deepEqual((await fit({})).ranges, all);
});

test('a written file reads as it was', t => {
  const wanted = ranges({ float32: [at(measured, 0)], percentOfMedianMax: 150 });
  t.deepEqual(parseRanges(formatRanges(wanted), 'here'), wanted);
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
