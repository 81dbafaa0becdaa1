/** The commands of model-tools, `models` and `providers`, as they are typed. */
import type { Command } from 'commander';
import type { CliConfig } from './cli-config.ts';
import { type ModelsCheckOptions, modelsCheck } from './models-check.ts';
import { type ModelsFetchOptions, modelsFetch } from './models-fetch.ts';
import { modelsList } from './models-list.ts';
import {
  type ProvidersCheckOptions,
  type ProvidersInstallOptions,
  type ProvidersListOptions,
  providersCheck,
  providersInstall,
  providersList,
} from './providers.ts';

export interface CommandContext {
  /** @throws ConfigError */
  config(): CliConfig;
  /** Aborted where the command is to end. */
  readonly signal: AbortSignal;
  /** What a command looked at is bad, and was said. */
  failed(): void;
}

export function addModelCommands(program: Command, { config, signal }: CommandContext): void {
  const models = program.command('models').description('fetch, list and check models');
  models
    .command('fetch')
    .description('fetch weights and prepare them for this machine')
    .argument('[name...]', 'models; none: those of MATTING_QUALITY, or MATTING_MODEL')
    .option('--json', 'print what was done as JSON')
    .option('--progress-json', 'print each step as a line of JSON')
    .option('--weights-only', 'fetch and check, and prepare nothing: for another machine')
    .option('--refuse-altered', 'fail on a damaged weights file in place of fetching it again')
    .action(async (names: string[], options: ModelsFetchOptions) => {
      const streams = { out: process.stdout, err: process.stderr };
      await modelsFetch(names, options, config(), streams, signal);
    });
  models
    .command('list')
    .description('list models, their licences, and what is fetched and prepared')
    .option('--json', 'print JSON')
    .action(async (options: { json?: boolean }) => {
      await modelsList(options, config(), process.stdout);
    });
  models
    .command('check')
    .description('load any ONNX file, print its tensors, run it and write a cut-out')
    .argument('<file>', 'an ONNX model that takes an RGB picture and gives a matte')
    .option('--image <file>', 'what to cut out; a painted ball otherwise')
    .option('--out <file>', 'the cut-out, a PNG', 'check.png')
    .option('--size <pixels>', "the input's side; the graph's own otherwise, or 512")
    .option('--mean <r,g,b>', 'taken from 0 to 255 values', '127.5,127.5,127.5')
    .option('--std <r,g,b>', 'then divided by', '127.5,127.5,127.5')
    .option('--bgr', 'blue comes first')
    .option('--sigmoid', 'the output is a logit')
    .option('--output <name>', 'the output that is the matte; the first otherwise')
    .action(async (file: string, options: ModelsCheckOptions) => {
      await modelsCheck(file, options, process.stdout);
    });
}

export function addProviderCommands(
  program: Command,
  { config, signal, failed }: CommandContext,
): void {
  const providers = program
    .command('providers')
    .description("install, list and check ONNX Runtime's parts for GPUs");
  const each = (value: string, before: string[]) => [...before, value];
  providers
    .command('install')
    .description("put a provider's files where an installation of packages leaves them alone")
    .argument('<name>', 'cuda; it brings the part for TensorRT with it')
    .option('--from <path>', 'a wheel, a NuGet package or a folder; fetched by pip otherwise')
    .option(
      '--sha256 <hex>',
      'a checksum to accept besides the known ones; again for more',
      each,
      [],
    )
    .option(
      '--libraries <folder>',
      "where CUDA's and cuDNN's libraries may lie; again for more",
      each,
      [],
    )
    .action(async (name: string, options: ProvidersInstallOptions) => {
      await providersInstall(name, options, config(), process.stdout, signal);
    });
  providers
    .command('list')
    .description('list providers, and what is missing of them')
    .option('--json', 'print JSON')
    .action(async (options: ProvidersListOptions) => {
      await providersList(options, config(), process.stdout);
    });
  providers
    .command('check')
    .description('check files, libraries, driver and GPUs, and run a small graph on each')
    .option('--no-run', 'run nothing')
    .option('--json', 'print JSON')
    .action(async (options: ProvidersCheckOptions) => {
      if (!(await providersCheck(options, config(), process.stdout))) failed();
    });
}
