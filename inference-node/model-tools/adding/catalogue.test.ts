import { listManifests } from '@matting/serving/models/manifest.ts';
import { loadPlanOutlines } from '@matting/serving/models/plan.ts';
import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { throwsWith } from '@matting/test-support/throws.ts';
import test from 'ava';
import {
  factsOfCatalogue,
  findByName,
  findBySum,
  loadCatalogue,
  parseCatalogue,
} from './catalogue.ts';

const catalogue = await loadCatalogue();
const SUM = 'a'.repeat(64);

const TERMS = { commercialUse: 'unclear', reason: 'Nobody says.', source: 'https://a.example/' };
const LEAST = {
  name: 'cutter',
  title: 'Cutter',
  role: 'subject',
  goodFor: 'paper',
  files: [{ name: 'cutter.onnx', url: 'https://a.example/cutter.onnx' }],
  licence: {
    spdx: 'NOASSERTION',
    origin: 'https://a.example/',
    weights: TERMS,
    trainingData: TERMS,
  },
  verified: false,
};
const [FILE] = LEAST.files;

const BAD_FIELDS: Readonly<Record<string, readonly unknown[]>> = {
  name: [undefined, '../cutter', 'Cutter'],
  title: ['two\nlines'],
  role: ['secondLook'],
  goodFor: [undefined],
  files: [undefined, [], [{ ...FILE, url: 'http://a.example/cutter.onnx' }]],
  'files[0].name': [[{ ...FILE, name: '../cutter.onnx' }]],
  'files[0].sha256': [[{ ...FILE, sha256: SUM.slice(1) }], [{ ...FILE, sha256: 'A'.repeat(64) }]],
  'files[0].mirrors[0]': [[{ ...FILE, mirrors: ['ftp://a.example/cutter.onnx'] }]],
  'files[0].bytes': [[{ ...FILE, bytes: 0 }]],
  'size.width': [{ width: 0, height: 1024 }],
  fit: ['crop'],
  'normalisation.std': [{ mean: [0, 0, 0], std: [255, 255, 0] }],
  activation: ['relu'],
  'licence.weights': [{ ...LEAST.licence, weights: undefined }],
  verified: ['no'],
  notes: ['unknown'],
};

test('a row with a field that is wrong, missing or unknown is refused by its name', t => {
  const parse = (row: object) => parseCatalogue(JSON.stringify([row]), 'models/catalogue.json');
  for (const [path, values] of Object.entries(BAD_FIELDS)) {
    const field = path.split(/[.[]/)[0] as string;
    const escaped = path.replaceAll(/[.[\]]/g, '\\$&');
    const named = new RegExp(`^models/catalogue\\.json: \\[0\\]\\.${escaped}`);
    for (const value of values) {
      const row = { ...LEAST, [field]: value };
      throwsWith(t, () => parse(row), isModelError('manifest', named));
    }
  }
  t.deepEqual(parse(LEAST), [LEAST] as unknown as typeof catalogue);
});

test('a row is found by its name and by the sum of its graph, and no other is', t => {
  const [first] = catalogue.filter(({ files }) => files[0]?.sha256 !== undefined);
  t.truthy(first);
  t.is(findByName(catalogue, first?.name ?? ''), first);
  t.is(findBySum(catalogue, first?.files[0]?.sha256 ?? ''), first);
  t.is(findByName(catalogue, 'no-such-model'), undefined);
  t.is(findBySum(catalogue, SUM), undefined);
});

test('no two rows share a name or a file, and none has the name of a plan or a shipped model', async t => {
  const plans = (await loadPlanOutlines()).map(({ name }) => name);
  const taken = [...plans, ...(await listManifests()), ...catalogue.map(({ name }) => name)];
  t.is(new Set(taken).size, taken.length);
  const files = catalogue.flatMap(({ files }) => files);
  const addresses = files.flatMap(({ url, mirrors = [] }) => [url, ...mirrors]);
  t.is(new Set(addresses).size, addresses.length);
  const sums = files.flatMap(({ sha256 }) => sha256 ?? []);
  t.is(new Set(sums).size, sums.length);
});

test('a file is called what its address ends with, which is pinned or can be', t => {
  const form = /\/releases\/download\/[^/]+\/|\/resolve\/([0-9a-f]{40}|main)\//;
  for (const { url, name } of catalogue.flatMap(({ files }) => files)) {
    t.is(new URL(url).pathname.split('/').at(-1), name);
    t.regex(url, form);
  }
});

test('a size that a row states is a multiple of what the graph takes', t => {
  for (const { name, size } of catalogue) {
    if (size?.multipleOf === undefined) continue;
    t.deepEqual([size.width % size.multipleOf, size.height % size.multipleOf], [0, 0], name);
  }
});

/** The publishers of these files disagree, see docs/models.md. */
const OPEN = { 'vitmatte-small': ['normalisation'], 'vitmatte-base': ['normalisation'] };

test('every row states what adding needs, but for a few that need options', t => {
  const needed = ['normalisation', 'size', 'fit', 'activation', 'colourOrder'] as const;
  const open = catalogue.map(row => {
    const facts = factsOfCatalogue(row);
    return [row.name, needed.filter(fact => facts[fact] === undefined)] as const;
  });
  t.deepEqual(Object.fromEntries(open.filter(([, facts]) => facts.length > 0)), OPEN as object);
  const takesTrimap = catalogue.filter(row => factsOfCatalogue(row).trimap);
  t.deepEqual(
    takesTrimap.map(({ name }) => name),
    Object.keys(OPEN),
  );
});
