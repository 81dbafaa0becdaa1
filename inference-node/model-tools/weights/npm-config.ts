/**
 * npm's settings as npm finds them: the environment, then the npmrc of the project, the user, the
 * machine and npm itself. Reads only what fetching a package needs.
 */
import { access, constants, readFile, realpath } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { ModelError } from '@matting/serving/models/model-error.ts';
import { parse } from 'ini';

/** npm's keys, such as `registry`, `@scope:registry`, `//host/:_authToken`. Never print it. */
export type NpmConfig = Readonly<Record<string, string | readonly string[] | undefined>>;

type Env = Readonly<Record<string, string | undefined>>;

const VARIABLE = /^npm_config_/i;
/** `${NAME}`, or `${NAME?}` if it may be unset. A backslash in front escapes it. */
const REFERENCE = /(?<!\\)(\\*)\$\{([^${}?]+)(\?)?\}/g;
/** A login without a host would go to any host, so npm refuses it too. */
const LOGINS = ['_auth', '_authToken', '_password', 'username'];

export async function loadNpmConfig({ env, cwd }: { env: Env; cwd: string }): Promise<NpmConfig> {
  const own = ofEnvironment(env);
  const npm = await locateNpm(env);
  const user = await readNpmrc(own.userconfig ?? join(env.HOME ?? homedir(), '.npmrc'), env);
  const prefix = own.prefix ?? user.prefix ?? env.PREFIX ?? npm.prefix;
  const machine = own.globalconfig ?? user.globalconfig ?? join(String(prefix), 'etc/npmrc');
  return {
    ...(await readNpmrc(join(npm.folder, 'npmrc'), env)),
    ...(await readNpmrc(machine, env)),
    ...user,
    ...(await readNpmrc(join(await projectFolder(cwd), '.npmrc'), env)),
    ...own,
  };
}

function ofEnvironment(env: Env): NpmConfig {
  const config: Record<string, string> = {};
  for (const [variable, value] of Object.entries(env)) {
    if (!VARIABLE.test(variable) || !value) continue;
    const name = variable.replace(VARIABLE, '');
    const isOfHost = name.startsWith('//');
    config[isOfHost ? name : name.replace(/(?!^)_/g, '-').toLowerCase()] = value;
  }
  return config;
}

async function readNpmrc(path: NpmConfig[string], env: Env): Promise<NpmConfig> {
  let text: string;
  try {
    text = await readFile(String(path), 'utf8');
  } catch (error) {
    const { code = '', message } = error as NodeJS.ErrnoException;
    // A service's user may not be able to read its home; npm continues too.
    if (['ENOENT', 'ENOTDIR', 'EACCES'].includes(code)) return {};
    throw unusable(message, error);
  }
  const config: Record<string, string | readonly string[]> = {};
  const expand = (value: unknown) => expandReferences(String(value), env);
  for (const [name, value] of Object.entries(parse(text) as Record<string, unknown>)) {
    // Skips sections, which npm does not have.
    if (Array.isArray(value)) config[expand(name)] = value.map(expand);
    else if (typeof value !== 'object') config[expand(name)] = expand(value);
  }
  const login = LOGINS.find(name => name in config);
  if (login === undefined) return config;
  throw unusable(`${path} has ${login} without its registry; write //registry.example/:${login}`);
}

function expandReferences(text: string, env: Env): string {
  return text.replace(REFERENCE, (whole, escapes: string, name: string, optional?: string) => {
    if (escapes.length % 2 === 1) return whole.slice((escapes.length + 1) / 2);
    const value = env[name] ?? (optional === undefined ? `\${${name}}` : '');
    return escapes.slice(escapes.length / 2) + value;
  });
}

export function unusable(reason: string, cause?: unknown): ModelError {
  return new ModelError('settings', `the npm configuration cannot be used: ${reason}`, cause);
}

/** The nearest package's folder, else the working directory. */
async function projectFolder(cwd: string): Promise<string> {
  for (let folder = cwd; ; folder = dirname(folder)) {
    for (const mark of ['package.json', 'node_modules']) {
      if (await allows(join(folder, mark), constants.F_OK)) return folder;
    }
    if (folder === dirname(folder)) return cwd;
  }
}

/**
 * npm finds its npmrc from its own folder. The Node that runs this may not be npm's, so the npm on
 * the PATH decides, else this Node's directory.
 */
async function locateNpm(env: Env): Promise<{ folder: string; prefix: string }> {
  for (const directory of (env.PATH ?? '').split(delimiter)) {
    const npm = join(directory, 'npm');
    if (!(await allows(npm, constants.X_OK))) continue;
    return { folder: dirname(dirname(await realpath(npm))), prefix: dirname(directory) };
  }
  const prefix = dirname(dirname(process.execPath));
  return { folder: join(prefix, 'lib', 'node_modules', 'npm'), prefix };
}

async function allows(path: string, mode: number): Promise<boolean> {
  return access(path, mode).then(
    () => true,
    () => false,
  );
}
