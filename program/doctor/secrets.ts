import { readFile } from 'node:fs/promises';

/** Variables with secret values, including those of other programs. */
const SECRET_NAME = /KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH|COOKIE|SESSION/i;
/** Exceptions: paths of files, and switches. */
const NO_SECRET =
  /_(FILE|HOST|PORT|AGENT_PID|SOCK)$|^MATTING_READS_REQUIRE_IDEMPOTENCY_KEY$|^AWS_ACCESS_KEY_ID$/;
/** The program's name is no secret: commands of the output contain it. */
const OWN_NAME = /^matting$/i;
/** A shorter secret would match ordinary words. */
const SECRET_LENGTH_MIN = 6;
const LEFT_OUT = '[left out]';

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * The last guard before a doctor's output: removes values of secret variables and passwords of
 * URLs.
 */
export class SecretsOut {
  /** The longest comes first, since one secret may contain another. */
  readonly #secrets: readonly string[];

  /** @param more secrets outside of the environment, such as a key file's content */
  constructor(env: Environment, more: readonly string[] = []) {
    const found = [...Object.entries(env).flatMap(secretsOf), ...more];
    const forms = found
      .flatMap(formsOf)
      .filter(form => form.length >= SECRET_LENGTH_MIN && !OWN_NAME.test(form));
    this.#secrets = [...new Set(forms)].sort((a, b) => b.length - a.length);
  }

  of(text: string): string {
    return this.#secrets.reduce((rest, secret) => rest.replaceAll(secret, LEFT_OUT), text);
  }
}

/**
 * Reads tokens from files that the environment names. An unreadable file cannot be printed either.
 */
export async function secretsOfFiles(env: Environment): Promise<string[]> {
  const files = ['MATTING_NODE_TOKEN_FILE', 'MATTING_NODE_CALLER_TOKENS_FILE'].flatMap(
    name => env[name] || [],
  );
  const texts = await Promise.all(files.map(file => readFile(file, 'utf8').catch(() => '')));
  const lines = texts.flatMap(text => text.split(/[\n,]/).map(line => line.trim()));
  return lines.flatMap(line => [line, line.slice(line.indexOf(':') + 1)]).filter(Boolean);
}

function secretsOf([name, value]: readonly [string, string | undefined]): string[] {
  if (value === undefined || value === '') return [];
  const passwords = passwordsOf(value);
  if (!SECRET_NAME.test(name) || NO_SECRET.test(name)) return passwords;
  // The value may be a list: name:token,name:token.
  const parts = value.split(',').flatMap(part => [part, part.slice(part.indexOf(':') + 1)]);
  return [value, ...parts, ...passwords];
}

function passwordsOf(value: string): string[] {
  if (!/^[a-z][a-z0-9+.-]*:\/\//i.test(value) || !URL.canParse(value)) return [];
  const { username, password } = new URL(value);
  // The signature in a storage's URL is a secret, too.
  const query = /[?&](?:[^=&]*(?:signature|token|credential|password)[^=&]*)=([^&]+)/gi;
  const signed = [...value.matchAll(query)].flatMap(([, text = '']) => [text]);
  const alone = password === '' && /:\/\/[^/@]+@/.test(value) ? [] : [password];
  return [...alone, ...signed, username !== '' && password !== '' ? `${username}:${password}` : ''];
}

/** @returns the secret as it is, decoded from a URL, encoded for a URL, and in JSON */
function formsOf(secret: string): string[] {
  const forms = [secret, encodeURIComponent(secret), JSON.stringify(secret).slice(1, -1)];
  try {
    forms.push(decodeURIComponent(secret));
  } catch {
    // The secret is not percent-encoded, so there is no decoded form.
  }
  if (/^[0-9a-f]{32,}$/i.test(secret)) {
    const bytes = Buffer.from(secret, 'hex');
    forms.push(secret.toLowerCase(), secret.toUpperCase());
    forms.push(bytes.toString('base64'), bytes.toString('base64url'));
  }
  return forms;
}
