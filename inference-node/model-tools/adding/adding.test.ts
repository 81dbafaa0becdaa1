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
import { ModelError } from '@matting/serving/models/model-error.ts';
import { describePrepared } from '@matting/serving/prepared/load-prepared.ts';
import { isModelError } from '@matting/serving/test/is-model-error.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import test, { type ExecutionContext } from 'ava';
import { OpenFacts, type Probe } from '../probing/probe-types.ts';
import { addingIn, FOUND } from '../test/adding.ts';
import { sha256 } from '../test/fake-registry.ts';
import { type ModelHost, openModelHost } from '../test/model-host.ts';
import { graphBytes, tinyGraph } from '../test/tiny-graph.ts';
import { AddressClient } from '../weights/address-client.ts';
import { type AddContext, addModel } from './add-model.ts';
import { type CatalogueModel, loadCatalogue } from './catalogue.ts';
import { fileNameOf, modelNameFrom, pinAddress } from './pin-address.ts';
import { removeAdded } from './staging-folder.ts';
import { readStatedManifest } from './stated-manifest.ts';

const GRAPH = graphBytes(tinyGraph({ side: 64 }));
const COMMIT = 'e48a20765fb421d19dcdb0bf3cc61e802ca5ec8f';
const IMAGENET = { mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375] } as const;
const BYTES = { mean: [0, 0, 0], std: [255, 255, 255] } as const;
const STATED = { normalisation: BYTES, activation: 'none' } as const;
const NO_OPTIONS = { facts: STATED, licence: {} };

test('an address says the name of a model and of its file', t => {
  for (const [path, name, file] of [
    ['/o/r/releases/download/v0/BiRefNet-general_epoch.onnx', 'birefnet-general-epoch', undefined],
    ['/me/BEN2-ONNX/resolve/main/onnx/model.onnx', 'ben2-onnx', 'model.onnx'],
    ['/me/BEN2/resolve/main/onnx/model_fp16.onnx', 'ben2-fp16', 'model_fp16.onnx'],
    ['/model.onnx', undefined, 'model.onnx'],
    ['/a/%E4%BD%A0.onnx', undefined, 'model.onnx'],
    ['/a/..%2Fb.onnx', 'b', 'model.onnx'],
  ] as const) {
    t.is(modelNameFrom(path), name, path);
    t.is(fileNameOf(path), file ?? path.split('/').at(-1)!, path);
  }
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
  readonly lines: string[];
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
  const lines: string[] = [];
  const add: Fixture['add'] = (target, options, own) =>
    addModel(
      target,
      { ...NO_OPTIONS, ...options },
      addingIn(folder, { say: line => lines.push(line), ...own }),
    );
  return { host, url: `${host.url}/me/tiny/resolve/main/onnx/model.onnx`, folder, lines, add };
}

const NO_MATTE = { probe: () => Promise.reject(new ModelError('prepare', 'no matte')) };

const foldersOf = ({ folder }: Fixture) => addingIn(folder).folders;

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

test('a file that the catalogue knows needs nothing stated, and what is stated wins', async t => {
  const { add, url, lines } = await open(t);
  const [birefnet] = await loadCatalogue();
  const [file] = birefnet!.files;
  const row: CatalogueModel = { ...birefnet!, files: [{ ...file!, sha256: sha256(GRAPH) }] };
  const facts: object[] = [];
  const own: Partial<AddContext> = {
    catalogue: [row],
    probe: async (_, stated) => {
      facts.push(stated);
      return FOUND;
    },
  };
  const { manifest } = await add(url, { facts: {} }, own);
  t.deepEqual(lines, ['the file is birefnet-general of the catalogue, which states what it takes']);
  t.deepEqual(manifest.normalisation, IMAGENET as never);
  t.like(manifest, { licence: row.licence, goodFor: row.goodFor, description: row.title });
  t.like(facts, [{ activation: 'sigmoid', output: 'output_image', size: { width: 1024 } }]);
  t.like((await add(url, {}, own)).manifest, { normalisation: BYTES, activation: 'none' });
});

test('a row of the catalogue is fetched by its name, from its mirrors, by its sum', async t => {
  const fixture = await open(t);
  const { add, url, host } = fixture;
  const [birefnet] = await loadCatalogue();
  const file = { name: 'a.onnx', url: `${host.url}/gone`, mirrors: [url], sha256: sha256(GRAPH) };
  const row = { ...birefnet!, name: 'row', files: [file] };
  const { manifest } = await add('row', { facts: {} }, { catalogue: [row] });
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

test('a model that cannot be added gives one line and leaves nothing', async t => {
  const fixture = await open(t);
  const { add, url, folder, host } = fixture;
  const address = url.replace('/main/', `/${COMMIT}/`);
  host.files.set('/page.onnx', { bytes: Buffer.from('<!doctype html>') });
  await writeFile(join(folder, 'zip.onnx'), 'PK\u0003\u0004');
  const catalogue = await loadCatalogue();
  const failing = { prepare: () => Promise.reject(new Error('out of memory')) };
  const cache = join(folder, 'cache');
  const nested = { modelDir: cache, weightsDir: undefined, addedModelsDir: join(cache, 'added') };
  for (const [target, expected, options, own] of [
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
    [url, /no matte/, {}, NO_MATTE],
    ['vitmatte-small', /nobody states normalisation/, { facts: {} }, { catalogue }],
    [address, /out of memory/, {}, failing],
  ] as const) {
    const error = await t.throwsAsync(add(target, options ?? {}, own ?? {}));
    t.regex(error?.message ?? '', expected);
    t.deepEqual(await filesIn(folder), ['zip.onnx'], error?.message ?? '');
  }
});

test('weights next to the graph come too, but none from another folder', async t => {
  const fixture = await open(t);
  const { add, folder, host } = fixture;
  for (const [location, expected] of [
    ['../secret', /"\.\.\/secret", which is no file of its own folder/],
    ['/etc/passwd', /which is no file of its own folder/],
    ['a/b', /which is no file of its own folder/],
    ['model.onnx', /which is the graph itself/],
    ['gone.data', /gone\.data: it has no such file/],
  ] as const) {
    host.files.set('/x/model.onnx', { bytes: externalGraph(location) });
    const error = await t.throwsAsync(add(`${host.url}/x/model.onnx`, { name: 'x' }));
    t.regex(error?.message ?? '', expected);
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

test('weights next to the graph do not decide what is removed', async t => {
  const { add, folder, host } = await open(t);
  await mkdir(join(folder, 'cache', 'mine', '1'), { recursive: true });
  await writeFile(join(folder, 'cache', 'mine', '1', 'kept'), '');
  for (const [data, name] of [
    ['placing.json', 'mine'],
    ['placing.json', '../cache/mine'],
    ['placing', '../cache/mine'],
  ] as const) {
    host.files.set('/x/model.onnx', { bytes: externalGraph(data) });
    const bytes = Buffer.from(JSON.stringify({ name, version: '1' }));
    host.files.set(`/x/${data}`, { bytes });
    const error = await t.throwsAsync(add(`${host.url}/x/model.onnx`, { name: 'x' }, NO_MATTE));
    t.regex(error?.message ?? '', /no matte/);
    t.deepEqual(await filesIn(folder), ['cache/mine/1/kept'], data);
  }
});

test('a location is found wherever its entry has it', async t => {
  const { add, host } = await open(t);
  host.files.set('/x/model.onnx', { bytes: externalGraph('../secret', 'value first') });
  const error = await t.throwsAsync(add(`${host.url}/x/model.onnx`, { name: 'x' }));
  t.regex(error?.message ?? '', /"\.\.\/secret", which is no file of its own folder/);
});

/** One tensor in another file: ModelProto.graph.initializer.external_data. */
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

test('a draft has what the graph says, and completed it states the rest', async t => {
  const { add, url, folder } = await open(t);
  const graph = {
    ...{ inputs: ['x: float32 [1, 3, ?, ?]'], outputs: ['a: float32 [?, ?]', 'b: float32 [?, ?]'] },
    facts: { fit: 'letterbox', firstOutput: true, trimap: false },
  } as const;
  const unknown = new OpenFacts(['normalisation', 'size', 'output'], graph);
  const probe = () => Promise.reject(unknown);
  const refused = () =>
    t.throwsAsync(add(url, { facts: {} }, { probe }), { instanceOf: OpenFacts });
  const file = 'tiny.manifest.json';
  t.regex(
    (await refused())?.draft ?? '',
    /replace each null of the draft tiny.manifest.json, and add --manifest/,
  );
  const draft = JSON.parse(await readFile(join(folder, file), 'utf8'));
  t.like(draft, { name: 'tiny', fit: 'letterbox', colourOrder: 'rgb', trimap: false });
  const nulls = Object.keys(draft).filter(field => draft[field] === null);
  t.deepEqual(nulls, ['normalisation', 'size', 'output', 'multipleOf']);
  for (const line of [...graph.inputs, ...graph.outputs])
    t.regex(draft.about.join(), RegExp(line.slice(0, 8)));
  t.deepEqual(await filesIn(folder), [file]);
  // Keeps the next one from the changed file.
  await writeFile(
    join(folder, file),
    JSON.stringify({ ...draft, normalisation: BYTES, output: 'b' }),
  );
  t.regex((await refused())?.draft ?? '', /use tiny.manifest.json, which is there already/);
  const [ben2] = (await loadCatalogue()).filter(({ files }) => files[0]?.name === 'BEN2_Base.onnx');
  const row = { ...ben2!, files: [{ name: 'a.onnx', url, sha256: sha256(GRAPH) }] };
  const named = add('ben2', { facts: {} }, { probe, catalogue: [row] });
  t.is((await t.throwsAsync(named, { instanceOf: OpenFacts }))?.draft, undefined);
  t.deepEqual(await filesIn(folder), [file]);
  const { name, licence, facts } = await readStatedManifest(join(folder, file));
  t.like(licence, { spdx: 'unknown', weights: { commercialUse: 'unclear' } });
  t.deepEqual(
    { name, facts },
    {
      name: 'tiny',
      facts: {
        ...{ normalisation: BYTES, output: 'b', fit: 'letterbox', colourOrder: 'rgb' },
        ...{ inverted: false, trimap: false },
      },
    },
  );
  await writeFile(join(folder, file), '{"size": 64}');
  const wrong = readStatedManifest(join(folder, file));
  await rejectsWith(
    t,
    wrong,
    isModelError('manifest', /tiny\.manifest\.json: size must be an obj/),
  );
  const gone = readStatedManifest(join(folder, 'gone.json'));
  await rejectsWith(t, gone, isModelError('disk', /cannot read .*gone\.json/));
});

test('stated facts and measured ones make the manifest', async t => {
  const { add, url } = await open(t);
  const graph = { ...FOUND.graph, dynamic: true };
  const added = async (facts: object, found: Partial<Probe>) => {
    const probe = async () => ({ ...FOUND, ...found });
    return (await add(url, { facts: { ...STATED, ...facts } }, { probe })).manifest;
  };
  t.is((await added({ inverted: false }, {})).inverted, undefined);
  t.true((await added({ inverted: true }, {})).inverted);
  t.like((await added({ multipleOf: 1 }, { graph })).inputSize, { default: 64, min: 1, max: 128 });
  const tall = { ...graph, inputHeight: 512 };
  const { inputSize } = await added({ multipleOf: 32 }, { graph: tall });
  t.like(inputSize, { default: 64, multipleOf: 32, max: 512 });
  const short = { fit: 'short-side', multipleOf: 32 };
  const narrow = await added(short, { graph, shortestSide: 33 });
  t.like(narrow.inputSize, { default: 64, multipleOf: 32, min: 64, max: 128 });
  const key = {
    ...({ precision: 'fp32', provider: 'cpu', instructionSet: 'vnni' } as const),
    ...{ inputWidth: 64, inputHeight: 64 },
  };
  const sidesOf = (manifest: ModelManifest) =>
    describePrepared(manifest, key, '/m.onnx', 'sum').form?.sides;
  t.deepEqual(sidesOf(narrow), { multipleOf: 32, min: 64, max: 128 });
  // A model that was added before keeps its checksum in fleets.
  const before = { ...narrow, inputSize: { ...narrow.inputSize, min: 32 } };
  t.deepEqual(sidesOf(before), { multipleOf: 32, max: 128 });
  const bytes = { ...FOUND.graph, inputType: 'uint8' as const };
  const itself = await added({ normalisation: undefined }, { graph: bytes });
  t.deepEqual(itself.normalisation, { mean: [0, 0, 0], std: [1, 1, 1] });
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

test('a staging folder of another machine is cleared when nobody has touched it for long', async t => {
  const { add, url, folder } = await open(t);
  const other = join(folder, 'cache', `.adding-other-1-${'a'.repeat(12)}`);
  await mkdir(other, { recursive: true });
  await add(url);
  t.true((await readdir(join(folder, 'cache'))).includes(`.adding-other-1-${'a'.repeat(12)}`));
  await utimes(other, 0, 0);
  await add(url);
  t.deepEqual(await readdir(join(folder, 'cache')), ['tiny']);
});
