/** Replaces other makers' images by programs of this machine. */
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { findProgram } from '../support/foreign-program.ts';
import { tried } from './podman.ts';

const BASE = process.env.MATTING_TEST_IMAGE_BASE ?? 'docker.io/library/debian:bookworm-slim';

/** Reads the variables as MariaDB's entry point does, as far as compose.yaml needs it. */
const MARIADB_START = `#!/bin/sh
set -eu
mkdir -p /run/mysqld && chown mysql /run/mysqld /var/lib/mysql
if [ ! -d /var/lib/mysql/mysql ]; then
  mariadb-install-db --user=mysql --skip-test-db >/dev/null
fi
cat >/run/mysqld/init.sql <<SQL
create database if not exists $MARIADB_DATABASE;
create user if not exists '$MARIADB_USER'@'%' identified by '$MARIADB_PASSWORD';
grant all on $MARIADB_DATABASE.* to '$MARIADB_USER'@'%';
alter user 'root'@'localhost' identified by '$MARIADB_ROOT_PASSWORD';
SQL
chown mysql /run/mysqld/init.sql
exec mariadbd --user=mysql --bind-address=0.0.0.0 --init-file=/run/mysqld/init.sql "$@"
`;

interface StandIn {
  readonly image: string;
  readonly program?: string;
  readonly containerfile: string;
  readonly files?: Readonly<Record<string, string>>;
}

const STAND_INS: readonly StandIn[] = [
  {
    image: 'docker.io/library/mariadb:10.11',
    containerfile:
      'RUN apt-get update && apt-get install -y --no-install-recommends mariadb-server && rm -rf /var/lib/mysql/* /var/lib/apt/lists/*\n' +
      'COPY --chmod=755 start /start\nVOLUME /var/lib/mysql\nENTRYPOINT ["/start"]',
    files: { start: MARIADB_START },
  },
  {
    image: 'ghcr.io/versity/versitygw:v1.8.0',
    program: 'versitygw',
    containerfile: 'COPY versitygw /app/versitygw\nENTRYPOINT ["/app/versitygw"]',
  },
  {
    image: 'docker.io/prom/prometheus:v3.5.0',
    program: 'prometheus',
    containerfile:
      'COPY prometheus /bin/prometheus\nVOLUME /prometheus\nENTRYPOINT ["/bin/prometheus"]\n' +
      'CMD ["--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"]',
  },
  {
    image: 'docker.io/library/caddy:2.10',
    program: 'caddy',
    containerfile:
      'COPY caddy /usr/bin/caddy\nENV XDG_DATA_HOME=/data XDG_CONFIG_HOME=/config\n' +
      'CMD ["caddy", "run", "--config", "/etc/caddy/Caddyfile", "--adapter", "caddyfile"]',
  },
  {
    image: 'docker.io/jaegertracing/all-in-one:1.76.0',
    program: 'jaeger',
    containerfile: 'COPY jaeger /jaeger\nENTRYPOINT ["/jaeger"]',
  },
];

const isHere = (image: string) => tried(['image', 'exists', image]).code === 0;

export function skipWithoutStandIns(): string | false {
  const missing = STAND_INS.filter(
    ({ image, program }) =>
      program !== undefined && findProgram(program) === undefined && !isHere(image),
  );
  if (missing.length === 0) return false;
  return `no image and no program for ${missing.map(({ image }) => image).join(', ')}`;
}

/** Minutes for the first one, which installs packages. */
export function makeStandIns(): void {
  for (const { image, program, containerfile, files = {} } of STAND_INS) {
    if (isHere(image)) continue;
    const folder = mkdtempSync(path.join(tmpdir(), 'matting-stand-in-'));
    try {
      if (program !== undefined) {
        copyFileSync(findProgram(program) ?? program, path.join(folder, program));
        chmodSync(path.join(folder, program), 0o755);
      }
      for (const [name, text] of Object.entries(files)) {
        writeFileSync(path.join(folder, name), text, { mode: 0o755 });
      }
      const text = `FROM ${BASE}\nLABEL matting.stand-in=true\n${containerfile}\n`;
      writeFileSync(path.join(folder, 'Containerfile'), text);
      execFileSync('podman', ['build', '--pull=never', '--tag', image, folder], {
        stdio: ['ignore', 'ignore', 'inherit'],
      });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }
}
