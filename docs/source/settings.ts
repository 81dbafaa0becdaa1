/** Writes docs/settings.md and the names of all variables, from what the programs declare. */
import { API_KEY } from '../../client/src/command/config.ts';
import { loadConfig as loadControlPlane } from '../../control-plane/core/config.ts';
import { PACKAGES } from '../../control-plane/packages.ts';
import { loadConfig as loadNode } from '../../inference-node/config.ts';
import { readCliConfig } from '../../inference-node/model-tools/commands/cli-config.ts';
import { type Declaration, EnvReader } from '../../program/env.ts';

interface Setting extends Declaration {
  readonly chapter: string;
}

/** These are only read beside others, or must be set. */
const ENV = {
  MATTING_NODE_TOKEN: 'a-token-for-the-page',
  OTEL_EXPORTER_OTLP_ENDPOINT: 'http://collector.internal:4318',
};
/** The variables for traces alone repeat the others; the rest are only as OpenTelemetry has them. */
const UNLISTED = /^OTEL_(?:BSP_|EXPORTER_OTLP_(?:TRACES_|TIMEOUT|COMPRESSION|CERTIFICATE|CLIENT_))/;
const UNITS: Readonly<Record<string, string>> = {
  _DIR: 'path',
  _FILE: 'path',
  _HOST: 'address',
  _MS: 'milliseconds',
  _S: 'seconds',
  _DAYS: 'days',
  _PER_MINUTE: 'requests a minute',
  _MEGAPIXELS_MAX: 'megapixels',
};

const INTRODUCTION = `# Settings

<!-- \`make generate\` writes this page from the code. Edit the \`about\` of a setting there. -->

You configure the programs by environment variables. An empty variable counts as unset. Items of a list are separated by commas.
A setting that ends in \`_FILE\` takes the path of a file. **Required** says when you must set one: those come first in each table.

- \`make start\` gives its environment to both programs.
- A wrong value stops a program before it listens. The message names every wrong variable and the form that it must have.
- If no program reads a \`MATTING_…\` variable, the start logs a warning with the name that you probably meant.
- [\`matting doctor\`](operate.md#run-the-doctor) checks the settings of a control plane, and \`matting doctor --node\` those of a node.
- The registry, the metrics and the ports of a node listen on loopback unless you set another address. Keep them inside your
  network: callers need \`MATTING_PORT\` only.
`;

const CONCLUSION = `## Variables of other software

| Setting | What it does |
|---|---|
| \`NODE_COMPILE_CACHE\` | The directory in which Node keeps compiled code for the next start. The default is \`node_modules/.cache/compiled\`. Set it empty to keep none. |
| \`NODE_EXTRA_CA_CERTS\` | The path of a PEM file with your own authorities, for receivers of webhooks and other servers. |
| \`UV_THREADPOOL_SIZE\` | The number of threads that Node uses for files and names. |
| \`OTEL_EXPORTER_OTLP_CERTIFICATE\`, \`…_CLIENT_CERTIFICATE\`, \`…_CLIENT_KEY\`, \`…_COMPRESSION\`, \`…_TIMEOUT\`, \`OTEL_BSP_…\` | More of [traces](monitoring.md#traces), as [OpenTelemetry](https://opentelemetry.io/docs/specs/otel/protocol/exporter/) has them. |
| \`AWS_…\` | The credentials and the endpoint of a [bucket](storage.md#use-a-bucket). |
`;

function declarationsOf(read: (reader: EnvReader) => unknown): readonly Declaration[] {
  const reader = new EnvReader(ENV);
  read(reader);
  return reader.declarations;
}

const CONTROL_PLANE = 'Control plane';
const NODE = 'Inference node';
const COMMANDS = 'Commands';
const BOTH = 'Both programs';
const CHAPTERS = [CONTROL_PLANE, NODE, BOTH, COMMANDS];

/** @throws Error where one is declared twice, and not as the same */
export function readSettings(): readonly Setting[] {
  const read: (readonly [string, readonly Declaration[]])[] = [
    [CONTROL_PLANE, declarationsOf(reader => loadControlPlane(ENV, PACKAGES, reader))],
    [NODE, declarationsOf(reader => loadNode(ENV, reader))],
    [COMMANDS, declarationsOf(reader => readCliConfig(ENV, '/', reader))],
    [COMMANDS, [API_KEY]],
  ];
  const settings = new Map<string, Setting>();
  for (const [chapter, declarations] of read) {
    for (const one of declarations.filter(({ variable }) => !UNLISTED.test(variable))) {
      const before = settings.get(one.variable);
      if (before !== undefined && rowOf(before) !== rowOf(one)) {
        throw new Error(`${one.variable} is declared twice, and not as the same`);
      }
      const isBoth = chapter === NODE && before?.chapter === CONTROL_PLANE;
      settings.set(one.variable, {
        ...(before ?? one),
        chapter: isBoth ? BOTH : (before?.chapter ?? chapter),
      });
    }
  }
  return [...settings.values()];
}

export function settingsPage(settings = readSettings()): string {
  return [
    INTRODUCTION,
    ...CHAPTERS.flatMap(chapter => [
      `## ${chapter}\n`,
      ...sectionsOf(settings.filter(one => one.chapter === chapter)),
    ]),
    CONCLUSION,
  ].join('\n');
}

function sectionsOf(settings: readonly Setting[]): string[] {
  const titles = new Set(settings.map(({ section }) => section));
  return [...titles].flatMap(title => [
    ...(titles.size > 1 ? [`### ${title}\n`] : []),
    '| Setting | Value | Default | What it does |',
    '|---|---|---|---|',
    ...settings
      .filter(({ section }) => section === title)
      .sort((one, other) => Number(isRequired(other)) - Number(isRequired(one)))
      .map(rowOf),
    '',
  ]);
}

const isRequired = (setting: Declaration) =>
  setting.required !== undefined || !('default' in setting);

function rowOf(setting: Declaration): string {
  const { variable, required } = setting;
  const about = setting.about.replaceAll(/\s+/g, ' ');
  const said = required === undefined ? about : `**Required ${required}.** ${about}`;
  return `| \`${variable}\` | ${formOf(setting)} | ${defaultOf(setting)} | ${said} |`;
}

/** The form with the unit that the name ends in. */
function formOf({ variable, expected }: Declaration): string {
  const unit = Object.entries(UNITS).find(([suffix]) => variable.endsWith(suffix))?.[1];
  const form = expected
    .replace(/^(one of|a URL of the form) /, '')
    .replace(/^a comma-separated list of /, 'list of ');
  return unit === undefined ? form : form.replace(/^(a whole number|a number|text$)/, unit);
}

function defaultOf(setting: Declaration): string {
  if (setting.otherwise !== undefined) return setting.otherwise;
  const text = String(setting.default ?? '');
  return text === '' ? 'none' : `\`${text}\``;
}

/** Lists the variables that the programs know as theirs, for program/env-names.ts. */
export function variableNames(settings = readSettings()): readonly string[] {
  return settings
    .map(({ variable }) => variable)
    .filter(name => name.startsWith('MATTING_'))
    .sort();
}
