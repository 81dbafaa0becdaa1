/**
 * `models add`: what a name, an address or a file stands for is brought, measured and described; the
 * manifest is written last.
 */
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
import type { Probe, ProbeLimits, ProbeWishes } from '../probing/probe.ts';
import { type AddressAccess, AddressClient, requireAddress } from '../weights/address.ts';
import { describeAdded, licenceOf, type StatedLicence } from './added-manifest.ts';
import { nameOf } from './addresses.ts';
import { type CatalogueModel, findByName, findBySum } from './catalogue.ts';
import { decide, type Facts, factsOfCatalogue, type Stated } from './facts.ts';
import { bringFiles, type FilesContext, findSettings, type Place } from './model-files.ts';
import { type ModelFolders, removeStaleWorkshops, Workshop } from './workshop.ts';

interface AddOptions {
  readonly name?: string | undefined;
  readonly sha256?: string | undefined;
  readonly flags: Facts;
  readonly licence: StatedLicence;
  readonly memoryMaxBytes?: number | undefined;
}

/** A fact that was neither stated nor found out: a person decides it. */
export type OpenFact = 'normalisation' | 'size' | 'activation';

export interface AddContext {
  readonly folders: ModelFolders;
  readonly cwd: string;
  readonly childEnv: Readonly<Record<string, string>>;
  readonly access: Pick<AddressAccess, 'env' | 'limits'>;
  readonly token: string | undefined;
  readonly catalogue: readonly CatalogueModel[];
  readonly signal: AbortSignal;
  readonly probe: (file: string, wishes: ProbeWishes, limits: ProbeLimits) => Promise<Probe>;
  /** Prepares the model for this machine, so that a node has it at once. */
  readonly prepare: (manifest: ModelManifest) => Promise<PreparedModel>;
  /** Asks a person for one at least, or throws. */
  readonly ask: (open: readonly OpenFact[], { cutouts }: Probe, name: string) => Promise<Facts>;
  readonly say: (line: string) => void;
  readonly onProgress: FilesContext['onProgress'];
}

export interface AddedModel {
  readonly manifest: ModelManifest;
  readonly prepared: PreparedModel;
  readonly cutout: string;
}

/** @throws ModelError, and what `ask` throws; then nothing of it is left */
export async function addModel(
  target: string,
  options: AddOptions,
  context: AddContext,
): Promise<AddedModel> {
  const { folders } = context;
  const known = await resolveTarget(target, options, context);
  const name = await requireName(known, folders);
  await removeStaleWorkshops(folders);
  await using workshop = await Workshop.open(folders);
  const { files, source, row, stated } = await bringKnown(known, options, workshop, context);
  await requireNew(name, files, folders);
  const { facts, probe } = await measure(
    name,
    workshop.path(files[0].name),
    stated,
    options,
    context,
  );
  const version = versionOf(files);
  const origin = source.type === 'address' ? originOf(source.url) : 'unknown';
  const licence = licenceOf(options.licence, row, origin);
  const described = { name, version, source, files, row, licence, facts, probe };
  const placed = describeAdded(described);
  context.signal.throwIfAborted();
  await workshop.place(placed.manifest);
  const cutout = join(folders.addedModelsDir, name, 'cutout.png');
  await writeFileWhole(cutout, file => file.write(probe.cutouts[0], 0));
  const prepared = await context.prepare(placed.manifest);
  const isKept = probe.mended === true && prepared.sha256 === files[0].sha256;
  // A graph that was not mended after all takes more than was measured.
  const { manifest, json } = isKept
    ? describeAdded({
        ...described,
        probe: await probeKept(prepared.path, facts, options, context),
      })
    : placed;
  context.signal.throwIfAborted();
  const path = join(folders.addedModelsDir, name, MANIFEST_FILE);
  await writeFileWhole(path, file => file.write(Buffer.from(json), 0));
  return { manifest, prepared, cutout };
}

interface Known {
  readonly name: string | undefined;
  readonly place: Place;
  readonly row: CatalogueModel | undefined;
}

async function resolveTarget(
  target: string,
  { name }: AddOptions,
  { catalogue, cwd }: AddContext,
): Promise<Known> {
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(target)) {
    const url = requireAddress(target);
    const place = { type: 'address', url: url.href, mirrors: [] } as const;
    return { name: name ?? nameOf(url.pathname), place, row: undefined };
  }
  const row = findByName(catalogue, target);
  const [graph] = row?.files ?? [];
  if (row !== undefined && graph !== undefined) {
    const { url, mirrors = [] } = graph;
    return { name: name ?? row.name, place: { type: 'address', url, mirrors }, row };
  }
  const path = resolve(cwd, target);
  const found = await stat(path).catch(() => undefined);
  if (found?.isFile()) {
    return { name: name ?? nameOf(basename(path)), place: { type: 'file', path }, row: undefined };
  }
  const what = `${JSON.stringify(target)} is not an address, a file or a name of the catalogue`;
  throw new ModelError('settings', `${what}; see "models list --catalogue"`);
}

/** @throws ModelError where a request for the name would mean something else */
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

/** The same file may be added again, to be described otherwise. */
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
  { place, row: named }: Known,
  { sha256, flags }: AddOptions,
  workshop: Workshop,
  context: AddContext,
) {
  const { access, token, catalogue, folders, signal, say, onProgress } = context;
  const origin = place.type === 'address' ? new URL(place.url).origin : '';
  await using client = new AddressClient({
    ...access,
    ...(token !== undefined && { token: { text: token, origin } }),
  });
  const filesContext = { workshop, folders, client, signal, say, onProgress };
  const [graph] = named?.files ?? [];
  const wanted = { ...graph, sha256: sha256 ?? graph?.sha256 };
  const brought = await bringFiles(place, wanted, filesContext);
  const row = named ?? findBySum(catalogue, brought.files[0].sha256);
  const stated: Stated[] = [{ by: 'the command line', facts: flags }];
  if (row !== undefined) {
    stated.push({ by: `the catalogue (${row.name})`, facts: factsOfCatalogue(row) });
  } else stated.push(...(await findSettings(place, brought.source, filesContext)));
  return { ...brought, row, stated };
}

/** Asks for the facts that are left open, and measures the model again with the answers. */
async function measure(
  name: string,
  path: string,
  stated: readonly Stated[],
  options: AddOptions,
  context: AddContext,
): Promise<{ readonly facts: Facts; readonly probe: Probe }> {
  const { say, ask } = context;
  const limits = limitsOf(options, context);
  const { facts, lines } = decide(stated);
  for (const line of lines) say(line);
  let measured = await probeStated(path, facts, options.flags, limits, context);
  const said = new Set<string>();
  for (;;) {
    const { probe } = measured;
    for (const warning of probe.warnings) {
      if (!said.has(warning)) say(`warning: ${warning}`);
      said.add(warning);
    }
    requireMatte(probe);
    const open = openFacts(measured);
    if (open.length === 0) return measured;
    const decided = { ...measured.facts, ...(await ask(open, probe, name)) };
    measured = { facts: decided, probe: await context.probe(path, decided, limits) };
  }
}

function probeKept(path: string, facts: Facts, options: AddOptions, context: AddContext) {
  const limits = { ...limitsOf(options, context), asItIs: true } as const;
  return context.probe(path, facts, limits);
}

function limitsOf({ memoryMaxBytes }: AddOptions, { childEnv, signal }: AddContext): ProbeLimits {
  return { childEnv, signal, ...(memoryMaxBytes !== undefined && { memoryMaxBytes }) };
}

/** A size or fit that only a file of settings states may be of another form of the same model. */
async function probeStated(
  path: string,
  facts: Facts,
  flags: Facts,
  limits: ProbeLimits,
  { probe, say }: AddContext,
): Promise<{ readonly facts: Facts; readonly probe: Probe }> {
  try {
    return { facts, probe: await probe(path, facts, limits) };
  } catch (error) {
    const { size: _, fit: __, ...others } = facts;
    const less = { ...others, ...flags };
    const isLess = less.size !== facts.size || less.fit !== facts.fit;
    if (!isLess || !(error instanceof ModelError) || error.kind !== 'settings') throw error;
    say(`warning: ${error.message}; it is measured without what was stated of size and fit`);
    return { facts: less, probe: await probe(path, less, limits) };
  }
}

function requireMatte({ constant, range: [least] }: Probe): void {
  if (!constant) return;
  throw new ModelError(
    'prepare',
    `its output is always ${least}; check --mean, --std and --output`,
  );
}

function openFacts({ facts, probe }: { facts: Facts; probe: Probe }): readonly OpenFact[] {
  const { graph, activation } = probe;
  const open: OpenFact[] = [];
  // A graph of bytes normalises by itself.
  const isOpen = facts.normalisation === undefined && graph.inputType !== 'uint8';
  if (isOpen) open.push('normalisation');
  if (facts.size === undefined && graph.dynamic) open.push('size');
  if (activation === undefined) open.push('activation');
  return open;
}

const VERSION_DIGITS = 12;

function versionOf(files: readonly [WeightsFile, ...WeightsFile[]]): string {
  const [graph, ...data] = files;
  if (data.length === 0) return graph.sha256.slice(0, VERSION_DIGITS);
  const sums = files.map(({ sha256 }) => sha256).join();
  return createHash('sha256').update(sums).digest('hex').slice(0, VERSION_DIGITS);
}

function originOf(url: string): string {
  const { origin, pathname, protocol } = new URL(url);
  return protocol === 'https:' ? `${origin}${pathname}` : 'unknown';
}
