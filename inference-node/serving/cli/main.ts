/**
 * The node's command line: `models`, `providers` and `doctor`. Only here does it handle signals and
 * end the process.
 *
 * | exit code | when                                                                    |
 * |-----------|-------------------------------------------------------------------------|
 * | 0         | done                                                                    |
 * | 1         | it cannot be done, one line on stderr says why and what to do, or a bug |
 * | 64        | the command could not be understood                                     |
 * | 78        | the configuration is not valid: every bad variable is on stderr, and    |
 * |           | every model that MATTING_COMMERCIAL_USE refuses                         |
 * | 130, 143  | ended by SIGINT, SIGTERM; what was half fetched is removed               |
 */
import { Command, CommanderError } from 'commander';
import { CONFIG_EXIT_CODE, ConfigError } from '#program/env.ts';
import { type ModelsCheckOptions, modelsCheck } from '../../model-tools/commands/models-check.ts';
import { type ModelsFetchOptions, modelsFetch } from '../../model-tools/commands/models-fetch.ts';
import { modelsList } from '../../model-tools/commands/models-list.ts';
import {
  type ProvidersCheckOptions,
  type ProvidersInstallOptions,
  type ProvidersListOptions,
  providersCheck,
  providersInstall,
  providersList,
} from '../../model-tools/commands/providers.ts';
import { ModelError } from '../models/model-error.ts';
import { ProviderError } from '../providers/provider-files.ts';
import { loadCliConfig } from './config.ts';
import { type DoctorOptions, doctor } from './doctor.ts';

const USAGE_EXIT_CODE = 64;
const SIGNAL_EXIT_CODES = { SIGINT: 130, SIGTERM: 143 } as const;

const ending = new AbortController();
let signalExitCode: number | undefined;
/** What a command found is bad, and was said. */
let failed = false;

for (const [signal, code] of Object.entries(SIGNAL_EXIT_CODES)) {
  process.on(signal, () => {
    signalExitCode ??= code;
    ending.abort();
  });
}

function createProgram(): Command {
  const program = new Command('matting').exitOverride().configureOutput({
    outputError: (text, write) => write(text.replace(/^error: /, 'matting: ')),
  });
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
      await modelsFetch(names, options, loadCliConfig(), streams, ending.signal);
    });
  models
    .command('list')
    .description('list models, their licences, and what is fetched and prepared')
    .option('--json', 'print JSON')
    .action(async (options: { json?: boolean }) => {
      await modelsList(options, loadCliConfig(), process.stdout);
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
  program
    .command('doctor')
    .description('look at everything this node needs; exits 1 where something fails')
    .option('--node', 'this, and not a control plane')
    .option('--json', 'print JSON')
    .option('--strict', 'exit 1 where there are warnings, too')
    .action(async (options: DoctorOptions) => {
      failed = !(await doctor(options, loadCliConfig(), process.stdout));
    });
  addProviders(program);
  return program;
}

function addProviders(program: Command): void {
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
      await providersInstall(name, options, loadCliConfig(), process.stdout, ending.signal);
    });
  providers
    .command('list')
    .description('list providers, and what is missing of them')
    .option('--json', 'print JSON')
    .action(async (options: ProvidersListOptions) => {
      await providersList(options, loadCliConfig(), process.stdout);
    });
  providers
    .command('check')
    .description('check files, libraries, driver and GPUs, and run a small graph on each')
    .option('--no-run', 'run nothing')
    .option('--json', 'print JSON')
    .action(async (options: ProvidersCheckOptions) => {
      failed = !(await providersCheck(options, loadCliConfig(), process.stdout));
    });
}

/** One line for a person; a stack only for what no person can mend. */
function explain(error: unknown): number {
  if (signalExitCode !== undefined) return signalExitCode;
  if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : USAGE_EXIT_CODE;
  const isConfig = error instanceof ConfigError;
  if (isConfig || error instanceof ModelError || error instanceof ProviderError) {
    process.stderr.write(`matting: ${error.message}\n`);
  } else console.error('matting: unexpected error:', error);
  return isConfig ? CONFIG_EXIT_CODE : 1;
}

let exitCode = 0;
try {
  await createProgram().parseAsync(process.argv);
  if (failed) exitCode = 1;
} catch (error) {
  exitCode = explain(error);
}
process.exitCode = exitCode;
// The registry's kept-alive connections must not hold the terminal; what is written is flushed
// first.
process.stdout.write('', () => process.exit());
