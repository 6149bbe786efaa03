// What the tests of the official Node client take for given: their runner's globals.
import { describe, test } from 'node:test';
import { expect } from 'expect';

Object.assign(globalThis, { describe, test, expect });
