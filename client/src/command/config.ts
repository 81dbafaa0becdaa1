/** What the command takes from the environment: a key on a command line could be read by everybody. */
import { CommandError } from './command-error.ts';

const API_KEY = 'MATTING_API_KEY';
const CONFIG_EXIT_CODE = 78;

/** A secret: never to be printed. @throws CommandError where there is none. */
export function loadApiKey(env: Readonly<Record<string, string | undefined>> = process.env) {
  const apiKey = env[API_KEY] ?? '';
  if (/^[!-~]{1,4096}$/.test(apiKey)) return apiKey;
  const expected = 'an API key, or --key-file a file that holds one';
  throw new CommandError(`${API_KEY} must be ${expected}`, CONFIG_EXIT_CODE);
}
