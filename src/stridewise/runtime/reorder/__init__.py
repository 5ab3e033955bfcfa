"""Reorders: conversion of tensors between any two formats."""
