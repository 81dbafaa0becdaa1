/** The manifest is written last, so that an aborted `models add` leaves no model. */
import { createHash } from 'node:crypto';
import { stat } from 'node:fs/promises';
import { basename, join, resolve } from 'node:path';
import { writeFileWhole } from '@matting/serving/models/cache-files.ts';
import {
  listManifests,
  loadManifest,
  MANIFEST_FILE,
  type ModelManifest,
  type WeightsFile,
} from '@matting/serving/models/manifest.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import { loadAddedPlans, loadPlanOutlines } from '@matting/serving/models/plan.ts';
import { MODEL_NAME, type PreparedModel } from '@matting/serving/models/prepared-model.ts';
import { type Facts, OpenFacts, type Probe, type ProbeLimits } from '../probing/probe-types.ts';
import { type AddressAccess, AddressClient, requireAddress } from '../weights/address-client.ts';
import { describeAdded, licenceOf, type StatedLicence } from './added-manifest.ts';
import { type CatalogueModel, factsOfCatalogue, findByName, findBySum } from './catalogue.ts';
import { bringFiles, type FilesContext, type ModelLocation } from './model-files.ts';
import { modelNameFrom } from './pin-address.ts';
import { type ModelFolders, removeStaleStagingFolders, StagingFolder } from './staging-folder.ts';
import { writeDraft } from './stated-manifest.ts';

interface AddOptions {
  readonly name?: string | undefined;
  readonly sha256?: string | undefined;
  readonly facts: Facts;
  /** The operator's manifest states the facts. Otherwise a draft lists the unknown ones. */
  readonly hasManifest?: boolean;
  readonly licence: StatedLicence & { readonly whole?: ModelManifest['licence'] | undefined };
  readonly memoryMaxBytes?: number | undefined;
}

export interface AddContext {
  readonly folders: ModelFolders;
  readonly cwd: string;
  readonly childEnv: Readonly<Record<string, string>>;
  readonly access: Pick<AddressAccess, 'env' | 'limits'>;
  readonly token: string | undefined;
  readonly catalogue: readonly CatalogueModel[];
  readonly signal: AbortSignal;
  readonly probe: (file: string, facts: Facts, limits: ProbeLimits) => Promise<Probe>;
  readonly prepare: (manifest: ModelManifest) => Promise<PreparedModel>;
  readonly say: (line: string) => void;
  readonly onProgress: FilesContext['onProgress'];
}

export interface AddedModel {
  readonly manifest: ModelManifest;
  readonly range: Probe['range'];
  readonly prepared: PreparedModel;
  readonly cutout: string;
}

/** @throws ModelError; OpenFacts, after which only a draft remains */
export async function addModel(
  target: string,
  options: AddOptions,
  context: AddContext,
): Promise<AddedModel> {
  const { folders } = context;
  const known = await resolveTarget(target, options, context);
  const name = await requireName(known, folders);
  if (known.row !== undefined) requireFacts(known.row, options);
  await removeStaleStagingFolders(folders);
  await using staging = await StagingFolder.open(folders);
  const { files, source, row } = await bringKnown(known, options, staging, context);
  await requireNew(name, files, folders);
  const facts = statedOf(row, options);
  const origin = source.type === 'address' ? originOf(source.url) : 'unknown';
  const { whole = row?.licence } = options.licence;
  const licence = licenceOf(options.licence, whole, origin);
  const limits = limitsOf(options, context);
  const path = staging.path(files[0].name);
  const probe = await context.probe(path, facts, limits).catch(async error => {
    if (!(error instanceof OpenFacts) || known.row !== undefined || options.hasManifest)
      throw error;
    const { open, graph } = error;
    throw new OpenFacts(open, graph, await writeDraft(context.cwd, { name, licence }, error));
  });
  const version = versionFromFiles(files);
  const described = { name, version, source, files, row, licence, facts, probe };
  const placed = describeAdded(described);
  context.signal.throwIfAborted();
  await staging.moveToCache(placed.manifest);
  const cutout = join(folders.addedModelsDir, name, 'cutout.png');
  await writeFileWhole(cutout, file => file.write(probe.cutout, 0));
  const prepared = await context.prepare(placed.manifest);
  const isKept = probe.mended === true && prepared.sha256 === files[0].sha256;
  // If preparing kept the original graph, its memory is measured again: it takes more.
  const { manifest, json } = isKept
    ? describeAdded({
        ...described,
        probe: await context.probe(prepared.path, facts, { ...limits, asItIs: true }),
      })
    : placed;
  context.signal.throwIfAborted();
  const written = join(folders.addedModelsDir, name, MANIFEST_FILE);
  await writeFileWhole(written, file => file.write(Buffer.from(json), 0));
  return { manifest, range: probe.range, prepared, cutout };
}

function statedOf(row: CatalogueModel | undefined, { facts }: AddOptions): Facts {
  return { ...(row && factsOfCatalogue(row)), ...facts };
}

/** @throws OpenFacts */
function requireFacts(row: CatalogueModel, options: AddOptions): void {
  const facts = statedOf(row, options);
  const open = (['normalisation', 'activation'] as const).filter(fact => facts[fact] === undefined);
  if (open.length > 0) throw new OpenFacts(open);
}

interface Known {
  readonly name: string | undefined;
  readonly location: ModelLocation;
  readonly row: CatalogueModel | undefined;
}

async function resolveTarget(
  target: string,
  { name }: AddOptions,
  { catalogue, cwd }: AddContext,
): Promise<Known> {
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(target)) {
    const url = requireAddress(target);
    const location = { type: 'address', url: url.href, mirrors: [] } as const;
    return { name: name ?? modelNameFrom(url.pathname), location, row: undefined };
  }
  const row = findByName(catalogue, target);
  const [graph] = row?.files ?? [];
  if (row !== undefined && graph !== undefined) {
    const { url, mirrors = [] } = graph;
    return { name: name ?? row.name, location: { type: 'address', url, mirrors }, row };
  }
  const path = resolve(cwd, target);
  const found = await stat(path).catch(() => undefined);
  if (found?.isFile()) {
    return {
      name: name ?? modelNameFrom(basename(path)),
      location: { type: 'file', path },
      row: undefined,
    };
  }
  const what = `${JSON.stringify(target)} is not an address, a file or a name of the catalogue`;
  throw new ModelError('settings', `${what}; see "models list --catalogue"`);
}

async function requireName({ name }: Known, { modelDir, addedModelsDir }: ModelFolders) {
  if (name === undefined) {
    throw new ModelError('settings', 'the address has no name for the model; set one with --name');
  }
  const refuse = (why: string) =>
    new ModelError('settings', `the name ${JSON.stringify(name)} ${why}; set another with --name`);
  if (!MODEL_NAME.test(name)) throw refuse('must have lower-case letters, digits and hyphens');
  const plans = [...(await loadPlanOutlines()), ...(await loadAddedPlans(addedModelsDir))];
  if (plans.some(plan => plan.name === name)) throw refuse('belongs to a plan');
  if ((await listManifests()).includes(name)) throw refuse('belongs to a shipped model');
  const others = [join(modelDir, 'providers'), addedModelsDir];
  if (others.includes(join(modelDir, name))) throw refuse('belongs to another folder there');
  return name;
}

/** Refuses another model's name. The same file may be added again with another description. */
async function requireNew(
  name: string,
  [graph]: readonly WeightsFile[],
  { addedModelsDir }: ModelFolders,
): Promise<void> {
  if (!(await listManifests(addedModelsDir)).includes(name)) return;
  const { files } = await loadManifest(name, addedModelsDir);
  if (files.some(({ sha256 }) => sha256 === graph?.sha256)) return;
  const way = `run "models remove ${name}" first, or set another with --name`;
  throw new ModelError('settings', `another model has the name ${name}; ${way}`);
}

async function bringKnown(
  { location, row: named }: Known,
  { sha256 }: AddOptions,
  staging: StagingFolder,
  context: AddContext,
) {
  const { access, token, catalogue, folders, signal, say, onProgress } = context;
  const origin = location.type === 'address' ? new URL(location.url).origin : '';
  await using client = new AddressClient({
    ...access,
    ...(token !== undefined && { token: { text: token, origin } }),
  });
  const [graph] = named?.files ?? [];
  const wanted = { ...graph, sha256: sha256 ?? graph?.sha256 };
  const filesContext = { staging, folders, client, signal, say, onProgress };
  const brought = await bringFiles(location, wanted, filesContext);
  const row = named ?? findBySum(catalogue, brought.files[0].sha256);
  if (row !== named) say(`the file is ${row?.name} of the catalogue, which states what it takes`);
  return { ...brought, row };
}

function limitsOf({ memoryMaxBytes }: AddOptions, { childEnv, signal }: AddContext): ProbeLimits {
  return { childEnv, signal, ...(memoryMaxBytes !== undefined && { memoryMaxBytes }) };
}

const VERSION_DIGITS = 12;

function versionFromFiles(files: readonly [WeightsFile, ...WeightsFile[]]): string {
  const [graph, ...data] = files;
  if (data.length === 0) return graph.sha256.slice(0, VERSION_DIGITS);
  const sums = files.map(({ sha256 }) => sha256).join();
  return createHash('sha256').update(sums).digest('hex').slice(0, VERSION_DIGITS);
}

function originOf(url: string): string {
  const { origin, pathname, protocol } = new URL(url);
  return protocol === 'https:' ? `${origin}${pathname}` : 'unknown';
}
