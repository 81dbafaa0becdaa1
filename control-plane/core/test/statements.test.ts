import ava from 'ava';
import { CORE_SUITE } from './core-suite.ts';
import { countRows } from './counting-rows.ts';

await countRows(ava.serial, CORE_SUITE);
