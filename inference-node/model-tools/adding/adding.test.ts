/** Tests what addresses, files and settings beside them tell, and what is left of an early end. */
import { spawn } from 'node:child_process';
import { mkdir, readdir, readFile, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import {
  listManifests,
  loadManifest,
  type ModelManifest,
} from '@matting/serving/models/manifest.ts';
import { describePrepared } from '@matting/serving/prepared/load-prepared.ts';
import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import test, { type ExecutionContext } from 'ava';
import { addingIn, FOUND } from '../test/adding.ts';
import { sha256 } from '../test/fake-registry.ts';
import { type ModelHost, openModelHost } from '../test/model-host.ts';
import { graphBytes, tinyGraph } from '../test/tiny-graph.ts';
import { AddressClient } from '../weights/address.ts';
import { type AddContext, addModel, type OpenFact } from './add-model.ts';
import { fileNameOf, nameOf, pinAddress, settingsBeside } from './addresses.ts';
import { type CatalogueModel, loadCatalogue } from './catalogue.ts';
import { type Facts, readGraphSettings, readPreprocessor } from './facts.ts';
import { removeAdded } from './workshop.ts';

const GRAPH = graphBytes(tinyGraph({ side: 64 }));
const COMMIT = 'e48a20765fb421d19dcdb0bf3cc61e802ca5ec8f';
const IMAGENET = { mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375] } as const;
const BYTES = { mean: [0, 0, 0], std: [255, 255, 255] } as const;
const NO_OPTIONS = { flags: { normalisation: BYTES }, licence: {} };

test('settings of a processor: whether it rescales is read before mean and std', t => {
  const ones = { image_mean: [0.485, 0.456, 0.406], image_std: [0.229, 0.224, 0.225] };
  const square = { size: { width: 512, height: 256 } };
  for (const [json, expected] of [
    [null, undefined],
    [[], undefined],
    [{ image_mean: [0.5, 0.5] }, undefined],
    [{ image_mean: [1, 1, 1], image_std: [1, 0, 1] }, undefined],
    [{ ...ones, rescale_factor: 'x' }, undefined],
    [ones, { normalisation: IMAGENET }],
    [{ ...ones, rescale_factor: 0.00392156862745098 }, { normalisation: IMAGENET }],
    [
      { do_rescale: false, image_mean: [128, 128, 128], image_std: 256 },
      { normalisation: { mean: [128, 128, 128], std: [256, 256, 256] } },
    ],
    [{ do_normalize: false, ...ones }, { normalisation: BYTES }],
    [
      { do_normalize: false, do_rescale: false },
      { normalisation: { mean: [0, 0, 0], std: [1, 1, 1] } },
    ],
    [
      { ...ones, ...square },
      { normalisation: IMAGENET, ...square, fit: 'stretch' },
    ],
    [
      { ...ones, ...square, do_pad: true },
      { normalisation: IMAGENET, ...square },
    ],
    [{ ...ones, ...square, do_resize: false }, { normalisation: IMAGENET }],
    [{ ...ones, size: 512 }, { normalisation: IMAGENET }],
    [
      { ...ones, size: { shortest_edge: 512 } },
      { normalisation: IMAGENET, size: { width: 512, height: 512 }, fit: 'short-side' },
    ],
    [{ ...ones, size: { longest_edge: 512 } }, { normalisation: IMAGENET }],
    [
      { ...ones, size: { longest_edge: 512 }, do_pad: true },
      { normalisation: IMAGENET, size: { width: 512, height: 512 }, fit: 'top-left' },
    ],
  ] as const) {
    t.deepEqual(readPreprocessor(json), expected as Facts | undefined, JSON.stringify(json));
  }
});

test('settings of withoutBG are read in their form alone', t => {
  const own = { canvas_size: 448, input_name: 'rgb', output_name: 'alpha', opset: 18 };
  t.deepEqual(readGraphSettings(own), {
    ...{ normalisation: BYTES, size: { width: 448, height: 448 }, fit: 'top-left' },
    output: 'alpha',
  });
  const others = [null, { audio: { sample_rate: 1 } }, { ...own, pipeline: 'routed' }];
  for (const json of others) t.is(readGraphSettings(json), undefined);
});

test('an address says the name of a model, of its file, and where settings lie', t => {
  for (const [path, name, file] of [
    ['/o/r/releases/download/v0/BiRefNet-general_epoch.onnx', 'birefnet-general-epoch', undefined],
    ['/me/BEN2-ONNX/resolve/main/onnx/model.onnx', 'ben2-onnx', 'model.onnx'],
    ['/me/BEN2/resolve/main/onnx/model_fp16.onnx', 'ben2-fp16', 'model_fp16.onnx'],
    ['/model.onnx', undefined, 'model.onnx'],
    ['/a/%E4%BD%A0.onnx', undefined, 'model.onnx'],
    ['/a/..%2Fb.onnx', 'b', 'model.onnx'],
  ] as const) {
    t.is(nameOf(path), name, path);
    t.is(fileNameOf(path), file ?? path.split('/').at(-1)!, path);
  }
  const beside = settingsBeside('https://h/o/r/resolve/main/onnx/model.onnx?download=true');
  t.deepEqual(
    beside.map(({ url }) => url.slice('https://h/o/r/resolve/main/'.length)),
    ['onnx/model.onnx.json', 'onnx/preprocessor_config.json', 'preprocessor_config.json'],
  );
});

test('a branch of the Hub is its commit, also where that redirects; others are known to move', async t => {
  const host = await openHost(t);
  const address = `${host.url}/me/r/resolve/main/onnx/model.onnx`;
  const pinned = `${host.url}/me/r/resolve/${COMMIT}/onnx/model.onnx`;
  host.files.set('/old/r/resolve/main/onnx/model.onnx', { bytes: GRAPH, redirect: address });
  host.files.set(new URL(pinned).pathname, { bytes: GRAPH, redirect: 'https://cdn.invalid/1' });
  await using client = new AddressClient({ env: {} });
  const pin = (url: string) => pinAddress(client, url, new AbortController().signal);
  t.deepEqual(await pin(address), { url: address, moves: true });
  host.commit = COMMIT;
  t.deepEqual(await pin(address), { url: pinned, revision: COMMIT, moves: false });
  t.deepEqual(await pin(pinned), { url: pinned, revision: COMMIT, moves: false });
  for (const [url, moves] of [
    ['https://raw.githubusercontent.com/o/r/main/a.onnx', true],
    [`https://raw.githubusercontent.com/o/r/${COMMIT}/a.onnx`, false],
    ['https://github.com/o/r/releases/latest/download/a.onnx', true],
    ['https://github.com/o/r/releases/download/v1/a.onnx', false],
  ] as const) {
    t.is((await pin(url)).moves, moves, url);
  }
});

async function openHost(t: ExecutionContext): Promise<ModelHost> {
  const host = await openModelHost();
  t.teardown(host.close);
  return host;
}

interface Fixture {
  readonly host: ModelHost;
  readonly url: string;
  readonly folder: string;
  readonly said: string[];
  readonly add: (
    target: string,
    options?: Partial<Parameters<typeof addModel>[1]>,
    own?: Partial<AddContext>,
  ) => ReturnType<typeof addModel>;
}

async function open(t: ExecutionContext): Promise<Fixture> {
  const host = await openHost(t);
  const folder = await temporaryFolder(t);
  host.commit = COMMIT;
  const path = `/me/tiny/resolve/${COMMIT}/onnx/model.onnx`;
  host.files.set(path, { bytes: GRAPH });
  const said: string[] = [];
  const add: Fixture['add'] = (target, options, own) =>
    addModel(
      target,
      { ...NO_OPTIONS, ...options },
      addingIn(folder, { say: line => said.push(line), ...own }),
    );
  return { host, url: `${host.url}/me/tiny/resolve/main/onnx/model.onnx`, folder, said, add };
}

const foldersOf = ({ folder }: Fixture) => addingIn(folder).folders;

/** Every file below, but for records of checks. */
async function filesIn(folder: string): Promise<readonly string[]> {
  const found = await readdir(folder, { recursive: true, withFileTypes: true }).catch(() => []);
  const files = found.filter(entry => !entry.isDirectory() && !/checked\.json$/.test(entry.name));
  return files.map(entry => join(entry.parentPath, entry.name).slice(folder.length + 1)).sort();
}

test('a model of an address is whole: its file, its commit, its cut-out and its manifest', async t => {
  const fixture = await open(t);
  const { add, url, folder } = fixture;
  const { manifest } = await add(url, { licence: { weights: 'MIT', data: 'yes: our own photos' } });
  const version = sha256(GRAPH).slice(0, 12);
  const pinned = url.replace('/main/', `/${COMMIT}/`);
  t.like(manifest, {
    ...{ name: 'tiny', version, normalisation: BYTES, activation: 'none', precisions: ['fp32'] },
    source: { type: 'address', url: pinned, revision: COMMIT },
    files: [{ name: 'model.onnx', bytes: GRAPH.length, sha256: sha256(GRAPH) }],
    measured: { peakBytes: 2e9, loadedBytes: 1e9, seconds: 1.5, provider: 'cpu' },
  });
  t.like(manifest.licence, { spdx: 'MIT', weights: { commercialUse: 'yes' } });
  t.is(manifest.licence.trainingData.commercialUse, 'yes');
  t.deepEqual(await loadManifest('tiny', undefined, join(folder, 'models')), manifest);
  t.deepEqual(await filesIn(folder), [
    `cache/tiny/${version}/weights/model.onnx`,
    'models/tiny/cutout.png',
    'models/tiny/manifest.json',
  ]);
});

test('flags win over the catalogue’s entry, and both over files beside the graph', async t => {
  const fixture = await open(t);
  const { add, url, host, said } = fixture;
  const settings = { image_mean: [0.5, 0.5, 0.5], image_std: 1, size: { width: 64, height: 64 } };
  const beside = `/me/tiny/resolve/${COMMIT}/preprocessor_config.json`;
  host.files.set(beside, { bytes: Buffer.from(JSON.stringify(settings)) });
  const halves = { mean: [127.5, 127.5, 127.5], std: [255, 255, 255] };
  const none = { flags: {} };
  t.deepEqual((await add(url, none)).manifest.normalisation, halves as never);
  t.deepEqual(said, ['preprocessor_config.json decides normalisation, size, fit']);
  const [birefnet] = await loadCatalogue();
  const [file] = birefnet!.files;
  const row: CatalogueModel = { ...birefnet!, files: [{ ...file!, sha256: sha256(GRAPH) }] };
  const catalogue = { catalogue: [row] };
  const { manifest } = await add(url, none, catalogue);
  t.deepEqual(manifest.normalisation, IMAGENET as never);
  t.like(manifest, { licence: row.licence, goodFor: row.goodFor, description: row.title });
  t.deepEqual((await add(url, {}, catalogue)).manifest.normalisation, BYTES as never);
  t.regex(said.at(-2) ?? '', /^the command line decides normalisation$/);
  t.regex(said.at(-1) ?? '', /^the catalogue \(birefnet-general\) decides size, fit, activation/);
  host.files.set(beside, { bytes: Buffer.from('{') });
  await add(url);
  t.is(said.at(-2), 'warning: preprocessor_config.json is not JSON, and was not read');
});

test('a row of the catalogue is fetched by its name, from its mirrors, by its sum', async t => {
  const fixture = await open(t);
  const { add, url, host } = fixture;
  const [birefnet] = await loadCatalogue();
  const file = { name: 'a.onnx', url: `${host.url}/gone`, mirrors: [url], sha256: sha256(GRAPH) };
  const row = { ...birefnet!, name: 'row', files: [file] };
  const { manifest } = await add('row', { flags: {} }, { catalogue: [row] });
  t.like(manifest.source, { url: file.url, mirrors: [url] });
  t.is(manifest.files[0]?.name, 'a.onnx');
  const other = { ...row, name: 'other', files: [{ ...file, sha256: '0'.repeat(64) }] };
  const refused = add('other', {}, { catalogue: [other] });
  await rejectsWith(t, refused, isModelError('fetch', /its sha256 is .*, not 0{64}/));
});

test('a graph that was measured mended and is kept as it is, is measured as it is', async t => {
  const { add, url } = await open(t);
  const kept = await add(
    url,
    {},
    {
      probe: async (_, __, { asItIs }) => ({
        ...FOUND,
        ...(asItIs ? { peakBytes: 9e9 } : { mended: true }),
      }),
      prepare: async ({ files }) => ({ sha256: files[0]?.sha256 }) as never,
    },
  );
  t.is(kept.manifest.measured?.peakBytes, 9e9);
});

test('a model that cannot be added gives one line and leaves nothing behind', async t => {
  const fixture = await open(t);
  const { add, url, folder, host } = fixture;
  const address = url.replace('/main/', `/${COMMIT}/`);
  host.files.set('/page.onnx', { bytes: Buffer.from('<!doctype html>') });
  await writeFile(join(folder, 'zip.onnx'), 'PK\u0003\u0004');
  const constant = { probe: async () => ({ ...FOUND, constant: true }) };
  const failing = { prepare: () => Promise.reject(new Error('out of memory')) };
  const cache = join(folder, 'cache');
  const nested = { modelDir: cache, weightsDir: undefined, addedModelsDir: join(cache, 'added') };
  for (const [target, said, options, own] of [
    ['nothing', /models list --catalogue/],
    ['http://example.com/a.onnx', /only https/],
    [url, /belongs to a plan/, { name: 'standard' }],
    [url, /shipped model/, { name: 'isnet' }],
    [url, /lower-case/, { name: '../x' }],
    [url, /another folder/, { name: 'providers' }],
    [url, /another folder/, { name: 'added' }, { folders: nested }],
    [`${host.url}/model.onnx`, /--name/],
    [`${host.url}/page.onnx`, /a web page/],
    [url, /its sha256 is/, { sha256: '0'.repeat(64) }],
    [join(folder, 'zip.onnx'), /a zip archive/],
    [url, /its output is always 0/, {}, constant],
    [url, /asked for normalisation/, { flags: {} }],
    [address, /out of memory/, {}, failing],
  ] as const) {
    const error = await t.throwsAsync(add(target, options ?? {}, own ?? {}));
    t.regex(error?.message ?? '', said);
    t.deepEqual(await filesIn(folder), ['zip.onnx'], error?.message ?? '');
  }
});

test('weights beside the graph come too, and none of another folder', async t => {
  const fixture = await open(t);
  const { add, folder, host } = fixture;
  for (const [location, said] of [
    ['../secret', /"\.\.\/secret", which is no file of its own folder/],
    ['/etc/passwd', /which is no file of its own folder/],
    ['a/b', /which is no file of its own folder/],
    ['model.onnx', /which is the graph itself/],
    ['gone.data', /gone\.data: it has no such file/],
  ] as const) {
    host.files.set('/x/model.onnx', { bytes: externalGraph(location) });
    const error = await t.throwsAsync(add(`${host.url}/x/model.onnx`, { name: 'x' }));
    t.regex(error?.message ?? '', said);
  }
  const graph = externalGraph('model.onnx.data');
  const data = Buffer.alloc(64, 1);
  host.files.set('/x/model.onnx', { bytes: graph });
  host.files.set('/x/model.onnx.data', { bytes: data });
  const { manifest } = await add(`${host.url}/x/model.onnx`, { name: 'x' });
  t.deepEqual(
    manifest.files.map(file => file.name),
    ['model.onnx', 'model.onnx.data'],
  );
  await mkdir(join(folder, 'own'));
  await writeFile(join(folder, 'own', 'b.onnx'), graph);
  await writeFile(join(folder, 'own', 'model.onnx.data'), data);
  const own = await add('own/b.onnx');
  t.like(own.manifest, { name: 'b', source: { type: 'file' }, version: manifest.version });
});

test('weights beside the graph have no say in what is removed', async t => {
  const { add, folder, host } = await open(t);
  await mkdir(join(folder, 'cache', 'mine', '1'), { recursive: true });
  await writeFile(join(folder, 'cache', 'mine', '1', 'kept'), '');
  const constant = { probe: async () => ({ ...FOUND, constant: true }) };
  for (const [data, name] of [
    ['placing.json', 'mine'],
    ['placing.json', '../cache/mine'],
    ['placing', '../cache/mine'],
  ] as const) {
    host.files.set('/x/model.onnx', { bytes: externalGraph(data) });
    const bytes = Buffer.from(JSON.stringify({ name, version: '1' }));
    host.files.set(`/x/${data}`, { bytes });
    const error = await t.throwsAsync(add(`${host.url}/x/model.onnx`, { name: 'x' }, constant));
    t.regex(error?.message ?? '', /output is always 0/);
    t.deepEqual(await filesIn(folder), ['cache/mine/1/kept'], data);
  }
});

test('a location is found wherever its entry has it', async t => {
  const { add, host } = await open(t);
  host.files.set('/x/model.onnx', { bytes: externalGraph('../secret', 'value first') });
  const error = await t.throwsAsync(add(`${host.url}/x/model.onnx`, { name: 'x' }));
  t.regex(error?.message ?? '', /"\.\.\/secret", which is no file of its own folder/);
});

/** A graph with one tensor, in another file: ModelProto.graph.initializer.external_data. */
function externalGraph(location: string, order?: 'value first'): Buffer {
  const field = (number: number, bytes: Buffer) =>
    Buffer.concat([Buffer.from([(number << 3) | 2, bytes.length]), bytes]);
  const entry = [field(1, Buffer.from('location')), field(2, Buffer.from(location))];
  if (order !== undefined) entry.reverse();
  const external = Buffer.from([(14 << 3) | 0, 1]);
  const tensor = Buffer.concat([field(13, Buffer.concat(entry)), external]);
  return Buffer.concat([Buffer.from([8, 8]), field(7, field(5, tensor))]);
}

test('the same bytes are stored once, and stay while another name has them', async t => {
  const fixture = await open(t);
  const { add, url, host } = fixture;
  const folders = foldersOf(fixture);
  const first = await add(url, { name: 'first' });
  host.files.clear();
  const second = await add(url, { name: 'second', sha256: sha256(GRAPH) });
  const pathOf = (name: string) =>
    join(folders.modelDir, name, first.manifest.version, 'weights/model.onnx');
  t.is((await stat(pathOf('first'))).ino, (await stat(pathOf('second'))).ino);
  await removeAdded(first.manifest, folders);
  t.deepEqual(await listManifests(folders.addedModelsDir), ['second']);
  t.true((await readFile(pathOf('second'))).equals(GRAPH));
  await removeAdded(second.manifest, folders);
  t.deepEqual(await filesIn(fixture.folder), []);
});

test('a name is another model’s only after that was removed', async t => {
  const fixture = await open(t);
  const { add, url, host } = fixture;
  await add(url);
  t.is((await add(url, { licence: { weights: 'MIT' } })).manifest.licence.spdx, 'MIT');
  const other = graphBytes(tinyGraph({ side: 32 }));
  host.files.set(`/me/tiny/resolve/${COMMIT}/onnx/model.onnx`, { bytes: other });
  await rejectsWith(t, add(url), isModelError('settings', /"models remove tiny" first/));
  const { name, files } = await loadManifest('tiny', foldersOf(fixture).addedModelsDir);
  t.deepEqual([name, files[0]?.sha256], ['tiny', sha256(GRAPH)]);
});

test('the command asks only for facts that are neither stated nor measurable, and measures again', async t => {
  const fixture = await open(t);
  const { activation: _, ...unsure } = FOUND;
  const graph = { ...FOUND.graph, dynamic: true };
  const asked: (readonly OpenFact[])[] = [];
  const wishes: object[] = [];
  const size = { width: 64, height: 64 };
  const answers: Facts[] = [{ normalisation: IMAGENET, size }, { activation: 'sigmoid' }];
  const own: Partial<AddContext> = {
    ask: async open => {
      asked.push(open);
      return answers.shift() ?? Promise.reject(new Error('asked again'));
    },
    probe: async (_, wished) => {
      wishes.push(wished);
      return wished.activation === undefined ? { ...unsure, graph } : { ...FOUND, graph };
    },
  };
  const { manifest } = await fixture.add(fixture.url, { flags: {} }, own);
  t.deepEqual(asked, [['normalisation', 'size', 'activation'], ['activation']]);
  t.deepEqual(wishes.at(-1), { normalisation: IMAGENET, activation: 'sigmoid', size });
  t.like(manifest.inputSize, { default: 64, min: 1, max: 128 });
  const tall = { ...graph, inputHeight: 512 };
  const ofTall = { ...own, probe: async () => ({ ...FOUND, graph: tall, multipleOf: 32 }) };
  const { inputSize } = (
    await fixture.add(fixture.url, { flags: { normalisation: IMAGENET, size } }, ofTall)
  ).manifest;
  t.like(inputSize, { default: 64, multipleOf: 32, max: 512 });
  const fit = 'short-side' as const;
  const ofNarrow = {
    ...own,
    probe: async () => ({ ...FOUND, graph, multipleOf: 32, shortestSide: 33 }),
  };
  const narrow = await fixture.add(
    fixture.url,
    { flags: { normalisation: IMAGENET, size, fit } },
    ofNarrow,
  );
  t.like(narrow.manifest.inputSize, { default: 64, multipleOf: 32, min: 64, max: 128 });
  const key = {
    ...({ precision: 'fp32', provider: 'cpu', instructionSet: 'vnni' } as const),
    ...{ inputWidth: 64, inputHeight: 64 },
  };
  const sidesOf = (manifest: ModelManifest) =>
    describePrepared(manifest, key, '/m.onnx', 'sum').form?.sides;
  t.deepEqual(sidesOf(narrow.manifest), { multipleOf: 32, min: 64, max: 128 });
  // A model that was added before keeps its checksum in fleets.
  const before = { ...narrow.manifest, inputSize: { ...narrow.manifest.inputSize, min: 32 } };
  t.deepEqual(sidesOf(before), { multipleOf: 32, max: 128 });
  const bytes = { ...FOUND.graph, inputType: 'uint8' as const };
  const itself = { probe: async () => ({ ...FOUND, graph: bytes }) };
  t.deepEqual((await fixture.add(fixture.url, { flags: {} }, itself)).manifest.normalisation, {
    ...{ mean: [0, 0, 0], std: [1, 1, 1] },
  });
});

for (const stage of ['download', 'probe', 'prepare', 'whole']) {
  test(`killed at ${stage} there is nothing or the whole, and the next one clears up`, async t => {
    const fixture = await open(t);
    const { add, url, folder, host } = fixture;
    if (stage === 'download') host.answers.push('drip');
    await killedAt(stage, url, folder);
    const { addedModelsDir, modelDir } = foldersOf(fixture);
    t.deepEqual(await listManifests(addedModelsDir), stage === 'whole' ? ['tiny'] : []);
    t.is(
      (await readdir(modelDir)).some(name => name.startsWith('.adding-')),
      stage !== 'whole',
    );
    await add(url, { name: 'next' });
    const left = await filesIn(folder);
    t.deepEqual(
      left.filter(path => !path.includes('/next/')),
      stage === 'whole' ? left.filter(path => path.includes('/tiny/')) : [],
    );
  });
}

function killedAt(stage: string, ...args: readonly string[]): Promise<void> {
  const script = fileURLToPath(new URL('../test/adding-process.ts', import.meta.url));
  const child = spawn(process.execPath, [script, ...args, stage], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  createInterface(child.stdout).on('line', line => {
    if (line === stage) child.kill('SIGKILL');
  });
  return new Promise(resolve => child.on('close', () => resolve()));
}

test('a workshop of another machine is cleared when nobody has touched it for long', async t => {
  const { add, url, folder } = await open(t);
  const other = join(folder, 'cache', `.adding-other-1-${'a'.repeat(12)}`);
  await mkdir(other, { recursive: true });
  await add(url);
  t.true((await readdir(join(folder, 'cache'))).includes(`.adding-other-1-${'a'.repeat(12)}`));
  await utimes(other, 0, 0);
  await add(url);
  t.deepEqual(await readdir(join(folder, 'cache')), ['tiny']);
});
