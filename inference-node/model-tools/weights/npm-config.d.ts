/** The part of npm's own configuration library that registry.ts uses; it ships no types. */

declare module '@npmcli/config' {
  export interface ConfigOptions {
    readonly definitions: unknown;
    readonly shorthands: unknown;
    readonly flatten: unknown;
    readonly nerfDarts: readonly string[];
    /** Directory of npm itself, whose `npmrc` is read first. */
    readonly npmPath: string;
    readonly argv: readonly string[];
    /** Written to by load(). */
    readonly env: Record<string, string | undefined>;
    /** The global npmrc is found from it. */
    readonly execPath: string;
    readonly platform: string;
    /** The project's npmrc is searched from here upwards. */
    readonly cwd: string;
  }

  export default class Config {
    constructor(options: ConfigOptions);
    load(): Promise<void>;
    validate(): boolean;
    isDefault(key: string): boolean;
    /** In the form that pacote and npm-registry-fetch take. */
    readonly flat: Readonly<Record<string, unknown>>;
  }
}

declare module '@npmcli/config/lib/definitions/index.js' {
  const config: {
    readonly definitions: unknown;
    readonly shorthands: unknown;
    readonly flatten: unknown;
    readonly nerfDarts: readonly string[];
  };
  export default config;
}
