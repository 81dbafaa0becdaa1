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
  runtimeVersion,
} from '@matting/serving/providers/provider-files.ts';
import type { Command } from 'commander';
import { CUDA_WHEEL, installCuda } from '../providers/install-cuda.ts';
import { installOpenvino } from '../providers/install-openvino.ts';
import type { CliConfig, CommandContext } from './cli-config.ts';

export function addProviderCommands(
  program: Command,
  { config, signal, failed }: CommandContext,
): void {
  const providers = program
    .command('providers')
    .description('install, list and check what npm does not bring: GPU providers and OpenVINO');
  providers
    .command('install')
    .description('install a GPU provider or OpenVINO; npm does not remove it')
    .argument('<name>', 'cuda or openvino')
    .option('--from <path>', 'wheel of PyPI (default: download it)')
    .action(async (name: string, options: ProvidersInstallOptions) => {
      await providersInstall(name, options, config(), process.stdout, signal);
    });
  providers
    .command('list')
    .description('list providers')
    .option('--json', 'print JSON')
    .action(async (options: ProvidersListOptions) => {
      await providersList(options, config(), process.stdout);
    });
  providers
    .command('check')
    .description('check files, driver and GPUs; run a small graph on each GPU')
    .option('--no-run', 'do not run a graph')
    .option('--json', 'print JSON')
    .action(async (options: ProvidersCheckOptions) => {
      if (!(await providersCheck(options, config(), process.stdout))) failed();
    });
}

interface ProvidersInstallOptions {
  readonly from?: string;
}

interface ProvidersListOptions {
  readonly json?: boolean;
}

interface ProvidersCheckOptions extends ProvidersListOptions {
  readonly run: boolean;
}

async function providersInstall(
  name: string,
  options: ProvidersInstallOptions,
  { providerDir, env }: CliConfig,
  out: Writable,
  signal: AbortSignal,
): Promise<void> {
  const given = { providerDir, env, signal, from: options.from };
  if (name === 'openvino') {
    const folder = await installOpenvino(given);
    out.write(`installed OpenVINO ${OPENVINO_VERSION} in ${folder}\n`);
    out.write('Next: matting models fetch\n');
    return;
  }
  if (name !== 'cuda') {
    throw new ProviderError(`no provider "${name}"; use cuda or openvino`);
  }
  const folder = await installCuda(given);
  out.write(`installed ${CUDA_WHEEL.name} for onnxruntime ${runtimeVersion()} in ${folder}\n`);
  out.write('Next: matting providers check\n');
}

async function report({ providerDir, childEnv }: CliConfig, hashed: boolean) {
  const installed = await readInstalled(providerDir, { hashed });
  const { gpus, tryCuda } = await findGpus(childEnv);
  return { found: { installed, gpus }, tryCuda };
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
  out.write(`cuda      ${stateLine(found.installed)}\n`);
}

/** True if CUDA runs here; with --no-run if its files are whole. */
async function providersCheck(options: ProvidersCheckOptions, config: CliConfig, out: Writable) {
  const { found, tryCuda } = await report(config, true);
  const { installed, gpus } = found;
  const whole = installed.state === 'installed';
  const attempts = options.run && whole ? await tryCuda(await engineEnvOf(config)) : [];
  const runs = attempts.length > 0 && attempts.every(({ reason }) => reason === undefined);
  const sound = options.run ? runs : whole;
  if (options.json) {
    out.write(`${JSON.stringify({ ...found, attempts, sound }, null, 2)}\n`);
    return sound;
  }
  out.write(`provider  ${stateLine(installed)}\n`);
  for (const line of gpuLines(gpus)) out.write(line);
  for (const { device, reason } of attempts) {
    out.write(`run       ${device}: ${reason ?? 'CUDA gives the results of the CPU'}\n`);
  }
  return sound;
}

async function engineEnvOf({ providerDir, childEnv }: CliConfig) {
  return (await readEngineEnvironment(providerDir, childEnv)).childEnv;
}

function openvinoLine(found: OpenvinoState): string {
  if (found.state === 'installed') return `${OPENVINO_VERSION}, in ${found.folder}`;
  if (found.state === 'missing') return 'not installed: "models fetch" installs it';
  return `not usable: ${found.folder} ${found.reason}; "models fetch" installs it again`;
}

function stateLine(installed: InstalledState): string {
  if (installed.state === 'missing') {
    return 'not installed: matting providers install cuda (docs/gpu.md)';
  }
  if (installed.state === 'unusable') {
    return `not usable: ${installed.folder} ${installed.reason}; install it again`;
  }
  const { record, folder } = installed;
  return `${record.source}, for onnxruntime ${record.runtimeVersion}, in ${folder}`;
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
