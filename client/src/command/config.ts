/** The key comes from the environment, because everybody can read command lines. */
import { CommandError } from './command-error.ts';

/** Shown in docs/settings.md. */
export const API_KEY = {
  variable: 'MATTING_API_KEY',
  section: 'matting remove',
  expected: 'an API key',
  about: 'The key with which [`matting remove` and `matting-remove`](remove.md) call a service.',
  required: 'unless you give `--key-file`',
  default: undefined,
};
const CONFIG_EXIT_CODE = 78;

/** Never print the key. @throws CommandError */
export function loadApiKey(env: Readonly<Record<string, string | undefined>> = process.env) {
  const apiKey = env[API_KEY.variable] ?? '';
  if (/^[!-~]{1,4096}$/.test(apiKey)) return apiKey;
  const problem = apiKey === '' ? 'is not set' : 'is not an API key';
  const remedy = 'set it, or name a file with the key by --key-file';
  throw new CommandError(`${API_KEY.variable} ${problem}; ${remedy}`, CONFIG_EXIT_CODE);
}
