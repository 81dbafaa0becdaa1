/**
 * npm's settings as npm finds them: the environment, then the npmrc of the project, of the user,
 * of the machine and of npm itself. Only what a fetch of a package needs is read from them.
 */
import { access, constants, readFile, realpath } from 'node:fs/promises';
import { homedir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { ModelError } from '@matting/serving/models/model-error.ts';
import { parse } from 'ini';

/** Keys are npm's, such as `registry`, `@scope:registry`, `//host/:_authToken`. Never print it. */
export type NpmConfig = Readonly<Record<string, string | readonly string[] | undefined>>;

type Env = Readonly<Record<string, string | undefined>>;

const VARIABLE = /^npm_config_/i;
/** `${NAME}`, and `${NAME?}` for one that may be unset; a backslash before it keeps it as it is. */
const REFERENCE = /(?<!\\)(\\*)\$\{([^${}?]+)(\?)?\}/g;
/** Without a host they would go to any: npm refuses them too. */
const LOGINS = ['_auth', '_authToken', '_password', 'username'];

/** @throws ModelError `settings` */
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
    // A service's user may not see the home that it is told of; npm goes on too.
    if (['ENOENT', 'ENOTDIR', 'EACCES'].includes(code)) return {};
    throw unusable(message, error);
  }
  const config: Record<string, string | readonly string[]> = {};
  const expand = (value: unknown) => expandReferences(String(value), env);
  for (const [name, value] of Object.entries(parse(text) as Record<string, unknown>)) {
    // A section is none of npm's.
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

/** The nearest folder of a package; without one, where the program was started. */
async function projectFolder(cwd: string): Promise<string> {
  for (let folder = cwd; ; folder = dirname(folder)) {
    for (const mark of ['package.json', 'node_modules']) {
      if (await allows(join(folder, mark), constants.F_OK)) return folder;
    }
    if (folder === dirname(folder)) return cwd;
  }
}

/**
 * npm finds its npmrc from where it is installed. The Node that runs this may not be npm's, so the
 * npm on the PATH decides; without one, this Node's directory.
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
