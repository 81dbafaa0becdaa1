/** Links npm's packages into a copy of the project; the project's own lead into the copy. */
import { mkdirSync, readdirSync, readlinkSync, symlinkSync } from 'node:fs';
import path from 'node:path';

const INSTALLED = path.resolve(import.meta.dirname, '../../node_modules');
const OWN = '@matting';
const CLIENT = 'matting-client';

/** @param root of the copy, without node_modules */
export function linkPackages(root: string): void {
  const modules = path.join(root, 'node_modules');
  mkdirSync(path.join(modules, OWN), { recursive: true });
  for (const name of readdirSync(INSTALLED)) {
    if (name !== OWN && name !== CLIENT)
      symlinkSync(path.join(INSTALLED, name), path.join(modules, name));
  }
  const ofHouse = readdirSync(path.join(INSTALLED, OWN)).map(name => path.join(OWN, name));
  for (const own of [...ofHouse, CLIENT]) {
    symlinkSync(readlinkSync(path.join(INSTALLED, own)), path.join(modules, own));
  }
}
