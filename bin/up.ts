/** `matting up`: the whole service on this machine. */
import path from 'node:path';
import { shortCurl } from '@matting/proto/contract/curl-sample.ts';
import type { Bootstrap } from './bootstrap.ts';
import { commandLine, loadSupervisorConfig, type SupervisorConfig } from './config.ts';
import { fetchModels } from './fetch-models.ts';
import { gpuHint } from './gpu-hint.ts';
import { NODE_TOKEN_FILE } from './node-token.ts';
import { type Stack, startStack } from './stack.ts';
import { LOOPBACK } from './stack-programs.ts';
import type { Terminal } from './terminal.ts';

const FIRST_ACCOUNT = 'default';
const FIRST_CREDITS = 1000;
/** Relative to the directory of `make start`. */
const DEMO_PHOTO = 'docs/images/demo.jpg';
/** Receives no mail. Whoever signs in by its link may invite others. */
const FIRST_OWNER = 'owner@localhost';

/** Runs until `signal` aborts. @throws CommandError, ConfigError */
export async function up(
  terminal: Terminal,
  signal: AbortSignal,
  onStack: (stack: Stack) => void,
): Promise<void> {
  const config = loadSupervisorConfig();
  let terms = '';
  const models = async (starting: AbortSignal) => {
    terms = await fetchModels(config, terminal, starting);
    const { length } = config.nodes;
    terminal.activity(
      `Starting the control plane and ${length === 1 ? 'one node' : `${length} nodes`}`,
    );
  };
  const say = (line: string) => terminal.line(`matting: ${line}`);
  const account = { name: FIRST_ACCOUNT, credits: FIRST_CREDITS, owner: FIRST_OWNER };
  const hinted = gpuHint(config);
  let apiKey: string | undefined;
  let signInLink: string | undefined;
  const onAccount = (made: Bootstrap) => {
    ({ apiKey, signInLink } = made);
  };
  const setup = { models, account, onAccount, say };
  const stack = await startStack(config, setup, signal).catch(error => {
    // The key cannot be shown later.
    if (apiKey !== undefined) sayKey(terminal, config, apiKey);
    throw error;
  });
  onStack(stack);
  try {
    terminal.quiet();
    terminal.line(`Ready: ${stack.baseUrl}   (Ctrl-C stops it; logs: ${stack.logDir})`);
    terminal.line(`Models: ${terms}`);
    if (config.profile === 'small') {
      terminal.line(
        'Profile small: the models are unloaded when idle, so a picture after that takes longer',
      );
    }
    const hint = await hinted;
    if (hint !== undefined) say(hint);
    if (apiKey !== undefined) sayKey(terminal, config, apiKey);
    else {
      const create = `keys create --account ${FIRST_ACCOUNT}`;
      terminal.line(`New API key: ${commandLine(config, create)}`);
    }
    sayCurlLine(terminal, config, { baseUrl: stack.localUrl, apiKey });
    terminal.line(`Next: ${stack.localUrl}/docs   npm install ${stack.localUrl}/client.tgz`);
    sayGrpc(terminal, config);
    sayOperatorPages(terminal, config);
    if (signInLink !== undefined) {
      terminal.line(`Account area (this link works once):  ${signInLink}`);
    }
    await aborted(signal);
    terminal.activity('Finishing open jobs, then stopping (press Ctrl-C again to stop now)');
  } finally {
    await stack.stop();
    terminal.quiet();
  }
}

/** The last lines, so that they are found. */
function sayKey(terminal: Terminal, config: SupervisorConfig, apiKey: string): void {
  terminal.line('');
  terminal.line(`API key with ${FIRST_CREDITS} credits, shown only now:  ${apiKey}`);
  const grant = `credits grant ${FIRST_ACCOUNT} 100000`;
  terminal.line(`More credits: ${commandLine(config, grant)}`);
}

/** The same as in the account area, with the demo picture. */
function sayCurlLine(
  terminal: Terminal,
  { env }: SupervisorConfig,
  { baseUrl, apiKey }: { readonly baseUrl: string; readonly apiKey: string | undefined },
): void {
  const call = { baseUrl, photo: DEMO_PHOTO, ...(apiKey !== undefined && { apiKey }) };
  terminal.line('Cut out the demo picture (each picture of yours gets its own Idempotency-Key):');
  terminal.line('');
  terminal.line(shortCurl(call));
  terminal.line('');
  if (env.MATTING_READS_REQUIRE_IDEMPOTENCY_KEY === undefined) {
    terminal.line('Send Idempotency-Key with reads too: elsewhere the service requires it.');
  }
}

/** Only for a generated token: an operator knows a configured one. */
function sayGrpc(terminal: Terminal, { nodes, dataDir, nodeToken, env }: SupervisorConfig): void {
  if (nodeToken !== undefined || env.MATTING_NODE_TOKEN_FILE) return;
  const file = path.join(dataDir, NODE_TOKEN_FILE);
  const addresses = nodes.map(({ model, port }) => {
    const of = model === undefined || nodes.length === 1 ? '' : ` (${model})`;
    return `${LOOPBACK}:${port}${of}`;
  });
  terminal.line(`gRPC at ${addresses.join(', ')}, with the token in ${file} (docs/grpc.md)`);
}

function sayOperatorPages(terminal: Terminal, { ports, env }: SupervisorConfig): void {
  if (!env.MATTING_OPERATOR_KEY) return;
  terminal.line(
    `Operator's pages: http://${LOOPBACK}:${ports.metrics}/operator   (sign in with MATTING_OPERATOR_KEY)`,
  );
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise(resolve => signal.addEventListener('abort', () => resolve(), { once: true }));
}
