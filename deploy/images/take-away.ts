/**
 * Takes packages of the control plane away: their folders, their lines in packages.ts, and what the
 * manifests say of them. What is left installs by the same lock file, and runs.
 *   node take-away.ts ROOT portal object-storage
 */
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const PROGRAM = 'control-plane';
const LIST = `${PROGRAM}/packages.ts`;
/** Without them it is no control plane. */
const NEEDED = new Set(['core', 'database', 'http', 'nodes', 'storage']);

const [root = '', ...names] = process.argv.slice(2);
for (const name of names) takeAway(name);

function takeAway(name: string): void {
  const folder = `${PROGRAM}/${name}`;
  if (NEEDED.has(name) || !existsSync(path.join(root, folder, 'package.json'))) {
    throw new Error(`${name} is no package of the control plane that can be taken away`);
  }
  rmSync(path.join(root, folder), { recursive: true });
  // No list is laid out with manifests alone.
  if (existsSync(path.join(root, LIST))) change(LIST, text => withoutPackage(text, name));
  changeJson('package.json', manifest => ({
    ...manifest,
    workspaces: manifest.workspaces?.filter(workspace => workspace !== folder),
  }));
  changeJson(`${PROGRAM}/package.json`, ({ dependencies, ...rest }) => {
    const { [`@matting/${name}`]: _gone, ...others } = dependencies ?? {};
    return { ...rest, dependencies: others };
  });
}

/** Removes the package's import, and its name in the list. */
function withoutPackage(text: string, name: string): string {
  const line = new RegExp(`^import \\{ (\\w+) \\} from '@matting/${name}/[^']+';\\n`, 'm');
  const [statement = '', variable = ''] = line.exec(text) ?? [];
  if (variable === '') throw new Error(`${LIST} does not import ${name}`);
  const named = new RegExp(`(?:\\n *| )?\\b${variable},|, ${variable}(?=\\])`);
  return text.replace(statement, '').replace(named, '');
}

interface Manifest {
  readonly workspaces?: readonly string[] | undefined;
  readonly dependencies?: Readonly<Record<string, string>>;
}

function changeJson(file: string, edit: (manifest: Manifest) => Manifest): void {
  change(file, text => JSON.stringify(edit(JSON.parse(text))));
}

/** @throws Error where nothing changed */
function change(file: string, edit: (text: string) => string): void {
  const place = path.join(root, file);
  const text = readFileSync(place, 'utf8');
  const edited = edit(text);
  if (edited === text) throw new Error(`${file} does not name what is to go`);
  writeFileSync(place, edited);
}
