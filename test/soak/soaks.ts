/** The soaks that there are: `test/soak/<name>.soak.ts` each. */
export interface Soak {
  readonly name: string;
  /** What it proves, to help decide whether to run it. */
  readonly about: string;
  /** Measured on two cores, rounded up. */
  readonly minutes: number;
}

export const SOAKS: readonly Soak[] = [
  {
    name: 'large-tables',
    about:
      'a million jobs, 200,000 due notifications, 3,000,000 ledger entries: no statement reads more',
    minutes: 20,
  },
  {
    name: 'damage',
    about: 'cut and spoilt files of every form are refused or come out whole; says what goes by',
    minutes: 2,
  },
  {
    name: 'ledger',
    about: 'three million ledger entries: checks killed half way, resumed, incremental, in full',
    minutes: 25,
  },
  {
    name: 'strangers',
    about: 'callers without a token or a key do their worst: memory stays flat, others are served',
    minutes: 4,
  },
  {
    name: 'forms',
    about: 'forms broken in every way, cut, slow, in pieces: memory stays flat, nothing is left',
    minutes: 2.5,
  },
  {
    name: 'several-machines',
    about:
      'two control planes, three nodes, Galera and a bucket by the documented commands: all restarted',
    minutes: 5,
  },
  {
    name: 'twenty-minutes',
    about:
      'from the last release to this version, one of everything killed, with a tiny model and u2netp',
    minutes: 50,
  },
];
