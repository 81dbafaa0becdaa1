/** `providers install`, `list` and `check`: parts of runtimes that npm does not bring. */

import type { Writable } from 'node:stream';
import { findGpus, type GpuListing } from '@matting/serving/engine/choice/host-gpus.ts';
import {
  type InstalledState,
  OPENVINO_VERSION,
  type OpenvinoState,
  ProviderError,
  readEngineEnvironment,
  readInstalled,
  readOpenvino,
} from '@matting/serving/providers/provider-files.ts';
import type { Command } from 'commander';
import { fetchPackage } from '../providers/fetch-package.ts';
import { installOpenvino } from '../providers/install-openvino.ts';
import { installProvider } from '../providers/install-provider.ts';
import {
  type FoundLibrary,
  findLibraries,
  foldersBelow,
  pythonLibraryFolders,
} from '../providers/library-search.ts';
import type { CliConfig, CommandContext } from './cli-config.ts';

export function addProviderCommands(
  program: Command,
  { config, signal, failed }: CommandContext,
): void {
  const providers = program
    .command('providers')
    .description('install, list and check what npm does not bring: GPU providers and OpenVINO');
  const each = (value: string, before: string[]) => [...before, value];
  providers
    .command('install')
    .description('install a GPU provider or OpenVINO; npm does not remove it')
    .argument('<name>', 'cuda or openvino')
    .option('--from <path>', 'wheel, NuGet package or folder (default: download it)')
    .option('--sha256 <hex>', 'checksum to accept besides the known ones (repeatable)', each, [])
    .option(
      '--libraries <folder>',
      'folder with the libraries of CUDA and cuDNN (repeatable)',
      each,
      [],
    )
    .action(async (name: string, options: ProvidersInstallOptions) => {
      await providersInstall(name, options, config(), process.stdout, signal);
    });
  providers
    .command('list')
    .description('list providers and their missing parts')
    .option('--json', 'print JSON')
    .action(async (options: ProvidersListOptions) => {
      await providersList(options, config(), process.stdout);
    });
  providers
    .command('check')
    .description('check files, libraries, driver and GPUs; run a small graph on each GPU')
    .option('--no-run', 'do not run a graph')
    .option('--json', 'print JSON')
    .action(async (options: ProvidersCheckOptions) => {
      if (!(await providersCheck(options, config(), process.stdout))) failed();
    });
}

interface ProvidersInstallOptions {
  readonly from?: string;
  readonly sha256: readonly string[];
  readonly libraries: readonly string[];
}

interface ProvidersListOptions {
  readonly json?: boolean;
}

interface ProvidersCheckOptions extends ProvidersListOptions {
  readonly run: boolean;
}

/** @throws ProviderError, ModelError `disk`, the signal's reason. */
async function providersInstall(
  name: string,
  options: ProvidersInstallOptions,
  { providerDir, env, childEnv }: CliConfig,
  out: Writable,
  signal: AbortSignal,
): Promise<void> {
  if (name === 'openvino') {
    const folder = await installOpenvino({ providerDir, env, signal, from: options.from });
    out.write(`installed OpenVINO ${OPENVINO_VERSION} in ${folder}\n`);
    out.write('Next: matting models fetch\n');
    return;
  }
  if (name !== 'cuda') {
    throw new ProviderError(`no provider "${name}"; use cuda or openvino`);
  }
  const given = (await Promise.all(options.libraries.map(foldersBelow))).flat();
  const ldLibraryPath = childEnv.LD_LIBRARY_PATH;
  const libraryFolders = [...given, ...(await pythonLibraryFolders(env))];
  const fetched = options.from === undefined ? await fetchPackage(env, signal) : undefined;
  const from = fetched?.file ?? (options.from as string);
  const wanted = { from, providerDir, accepted: options.sha256, libraryFolders, ldLibraryPath };
  const { folder, record } = await installProvider(wanted).finally(() => fetched?.discard());
  signal.throwIfAborted();
  out.write(`installed ${record.source} for onnxruntime ${record.runtimeVersion} in ${folder}\n`);
  const search = { ldLibraryPath, further: record.libraryFolders };
  for (const line of libraryLines(await findLibraries(search))) out.write(line);
  out.write('Next: matting providers check\n');
}

/** CUDA has its libraries listed, and none where it is not installed. */
async function report({ providerDir, childEnv }: CliConfig, hashed: boolean) {
  const installed = await readInstalled(providerDir, { hashed });
  const { gpus, tryCuda } = await findGpus(childEnv);
  if (installed.state !== 'installed') {
    return { found: { installed, gpus, libraries: { cuda: [] } }, tryCuda };
  }
  const { record } = installed;
  const search = { ldLibraryPath: childEnv.LD_LIBRARY_PATH, further: record.libraryFolders };
  const cuda = await findLibraries(search);
  return { found: { installed, gpus, libraries: { cuda } }, tryCuda };
}

async function providersList(options: ProvidersListOptions, config: CliConfig, out: Writable) {
  const { found } = await report(config, false);
  if (options.json) {
    out.write(`${JSON.stringify(found, null, 2)}\n`);
    return;
  }
  out.write('cpu       in the package\n');
  out.write(
    `openvino  ${openvinoLine(await readOpenvino(config.providerDir, { hashed: true }))}\n`,
  );
  out.write(`cuda      ${stateLine(found.installed, found.libraries.cuda)}\n`);
}

/** Returns true where CUDA runs here; with --no-run where nothing is missing for it. */
async function providersCheck(options: ProvidersCheckOptions, config: CliConfig, out: Writable) {
  const { found, tryCuda } = await report(config, true);
  const { installed, libraries, gpus } = found;
  const complete = installed.state === 'installed' && missing(libraries.cuda).length === 0;
  const attempts = options.run && complete ? await tryCuda(await engineEnvOf(config)) : [];
  const runs = attempts.length > 0 && attempts.every(({ reason }) => reason === undefined);
  const sound = options.run ? runs : complete;
  if (options.json) {
    out.write(`${JSON.stringify({ ...found, attempts, sound }, null, 2)}\n`);
    return sound;
  }
  out.write(`provider  ${stateLine(installed, [])}\n`);
  for (const line of libraryLines(libraries.cuda)) out.write(line);
  for (const line of gpuLines(gpus)) out.write(line);
  for (const { device, reason } of attempts) {
    out.write(`run       ${device}: ${reason ?? 'CUDA gives the results of the CPU'}\n`);
  }
  return sound;
}

async function engineEnvOf({ providerDir, childEnv }: CliConfig) {
  return (await readEngineEnvironment(providerDir, childEnv)).childEnv;
}

function missing(libraries: readonly FoundLibrary[]): readonly FoundLibrary[] {
  return libraries.filter(({ path, opened }) => path === undefined && !opened);
}

function openvinoLine(found: OpenvinoState): string {
  if (found.state === 'installed') return `${OPENVINO_VERSION}, in ${found.folder}`;
  if (found.state === 'missing') return 'not installed: "models fetch" installs it';
  return `not usable: ${found.folder} ${found.reason}; "models fetch" installs it again`;
}

function stateLine(installed: InstalledState, libraries: readonly FoundLibrary[]): string {
  if (installed.state === 'missing') {
    return 'not installed: matting providers install cuda (docs/gpu.md)';
  }
  if (installed.state === 'unusable') {
    return `not usable: ${installed.folder} ${installed.reason}; install it again`;
  }
  const { record, folder } = installed;
  const lacking = missing(libraries).map(({ name }) => name);
  const lacks = lacking.length === 0 ? '' : `; missing: ${lacking.join(', ')}`;
  return `${record.source}, for onnxruntime ${record.runtimeVersion}, in ${folder}${lacks}`;
}

function libraryLines(libraries: readonly FoundLibrary[]): string[] {
  return libraries.map(({ name, path, neededBy }) =>
    path === undefined
      ? `library   ${name} is missing (${neededBy} needs it); install ${makerOf(name)}\n`
      : `library   ${name} ${path}\n`,
  );
}

function makerOf(name: string): string {
  if (name.startsWith('libcuda.')) return "NVIDIA's driver";
  if (name.startsWith('libcudnn')) return 'cuDNN 9';
  return 'CUDA 13';
}

function gpuLines(gpus: GpuListing): string[] {
  if (gpus.state === 'absent') return [`driver    not installed: ${gpus.reason}\n`];
  if (gpus.state === 'failed') return [`driver    not answering: ${gpus.reason}\n`];
  const lines = gpus.gpus.map(({ index, id, name, memoryBytes, driver }) => {
    const memory = `${(memoryBytes / 1e9).toFixed(1)} GB`;
    return `gpu ${index}     ${name}, ${memory}, driver ${driver}, ${id}\n`;
  });
  if (lines.length === 0) lines.push('driver    lists no GPU\n');
  const { incomplete: unlisted } = gpus;
  return unlisted === undefined
    ? lines
    : [...lines, `driver    does not list every GPU: ${unlisted}\n`];
}
