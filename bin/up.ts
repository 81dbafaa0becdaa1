/** `matting up`: the whole service on this machine, until it is told to end. */
import { loadSupervisorConfig } from './config.ts';
import { fetchModels } from './fetch-models.ts';
import { type Stack, startStack } from './stack.ts';
import type { Terminal } from './terminal.ts';

const FIRST_ACCOUNT = 'default';
const FIRST_CREDITS = 1000;

/** Runs until `signal` aborts. @throws SetupError, ConfigError */
export async function up(
  terminal: Terminal,
  signal: AbortSignal,
  onStack: (stack: Stack) => void,
): Promise<void> {
  const config = loadSupervisorConfig();
  const models = async (starting: AbortSignal) => {
    await fetchModels(config, terminal, starting);
    terminal.activity('Starting the control plane and one node');
  };
  const say = (line: string) => terminal.line(`matting: ${line}`);
  const account = { name: FIRST_ACCOUNT, credits: FIRST_CREDITS };
  const stack = await startStack(config, { models, account, say }, signal);
  onStack(stack);
  try {
    const { apiKey } = stack.account;
    terminal.quiet();
    terminal.line(`Ready: ${stack.baseUrl}   (Ctrl-C ends it; logs in ${stack.logDir})`);
    if (apiKey !== undefined) sayFirstKey(terminal, stack.baseUrl, apiKey);
    else terminal.line('Another key: npm run matting -- keys create --account default');
    await aborted(signal);
    terminal.activity('Finishing what runs, then ending (again to hurry)');
  } finally {
    await stack.stop();
    terminal.quiet();
  }
}

function sayFirstKey(terminal: Terminal, baseUrl: string, apiKey: string): void {
  terminal.line('');
  terminal.line(`API key, shown this once, with ${FIRST_CREDITS} credits:  ${apiKey}`);
  terminal.line('');
  terminal.line('Cut the demo picture out (paste it into a shell in this directory):');
  terminal.line('');
  terminal.line(curlLine(baseUrl, apiKey));
  terminal.line('');
}

/**
 * One line that works when pasted, whatever the shell: the body comes through a pipe, since a photo
 * in Base64 is longer than a command line may be.
 */
export function curlLine(baseUrl: string, apiKey: string): string {
  return [
    `(printf '{"image_base64":"'; base64 < docs/images/demo.jpg | tr -d '\\n'; printf '"}')`,
    `| curl -sS ${baseUrl}/v1/matting -H 'Authorization: Bearer ${apiKey}'`,
    `-H "Idempotency-Key: demo-$(date +%s)" -H 'Content-Type: application/json' --data-binary @-`,
  ].join(' ');
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve();
  return new Promise(resolve => signal.addEventListener('abort', () => resolve(), { once: true }));
}
