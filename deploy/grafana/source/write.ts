/** Writes the dashboards beside this folder, or into the folder that is named. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { FLEET } from './fleet.ts';
import { MONEY } from './money.ts';
import { dashboardOf } from './panels.ts';
import { SERVICE } from './service.ts';

const folder = path.resolve(process.argv[2] ?? path.join(import.meta.dirname, '..'));
for (const [name, page] of Object.entries({ service: SERVICE, fleet: FLEET, money: MONEY })) {
  const json = JSON.stringify(dashboardOf(page), undefined, 2);
  writeFileSync(path.join(folder, `${name}.json`), `${json}\n`);
}
